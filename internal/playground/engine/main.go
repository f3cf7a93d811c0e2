// Command engine is what decides in the playground's page: package limiter as WebAssembly, for
// which it is built with -buildmode=c-shared. The page writes into the memory that room makes,
// calls one of the other functions, and reads as much as that says from output: numbers, or
// words with a zero byte between them. Times are in microseconds.
//
// The page is the same with newer modules, whose Go would otherwise choose these settings.
//
//go:debug default=go1.25
package main

func main() {} // of a library: only what is exported is called
