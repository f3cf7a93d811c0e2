// Package tests is a module of its own, for tests that need more than Weir does: miniredis, OpenTelemetry's SDK,
// bunrouter, clients of gRPC and Connect, and chromedp, which drives a browser. What is here is in no user's module
// graph.
package tests
