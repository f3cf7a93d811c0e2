// Package miniredistest tries package redisstore on miniredis, on which many test their
// services. It is a module of its own, so that Weir's has no need of miniredis.
package miniredistest
