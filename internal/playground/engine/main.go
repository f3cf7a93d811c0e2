// Command engine is the playground's engine: package limiter as WebAssembly, built with
// -buildmode=c-shared. The page writes into the memory that room allocates, calls one of the other
// functions, and reads the result from output, as long as the function returns: numbers, or words
// separated by zero bytes. Times are in microseconds.
//
// Without this, the go directive of a newer module would change the engine.
//
//go:debug default=go1.25
package main

func main() {} // never called: this is a library
