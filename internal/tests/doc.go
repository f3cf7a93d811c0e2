// Package tests is a module of its own, for tests that need more than Weir does: miniredis,
// and OpenTelemetry's SDK. What is here is in no user's module graph.
package tests
