package route

var Likely = likely
