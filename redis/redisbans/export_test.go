package redisbans

// Open is New with another patience.
var Open = open
