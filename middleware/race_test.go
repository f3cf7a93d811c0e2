//go:build race

package middleware_test

const underRace = true
