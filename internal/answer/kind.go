package answer

// A Kind is the reason of a refusal.
type Kind uint8

const (
	Quota         Kind = iota // a limit is exceeded, or a ban is answered like one
	Cost                      // the request costs more than the limit ever allows at once
	Zero                      // the client's own limit is 0
	AtOnce                    // too many requests are in progress
	Banned                    // the client is banned
	Denied                    // a rule denies the request
	DeniedNow                 // a rule denies the request with status 429
	NoKey                     // the request has no key, or several
	NoCredentials             // the request has no key, and the key is a credential
	TooLong                   // the request's body is longer than what is read for its limits
	Late                      // the request's body did not arrive in time
	Unavailable               // nobody can decide, the server sheds load, or a rule denies with status 503
)

// registry is where draft-11 registers its problem types.
const registry = "https://iana.org/assignments/http-problem-types#"

// kinds has the texts of each kind. None needs escaping in JSON.
var kinds = [...]struct {
	problem string // RFC 9457; empty: no registered type, about:blank
	title   string
	code    string // the member "error" of the JSON body
	message string // of AtOnce: see appendMessage
	ai      string // the type of the error of AI
}{
	Quota: {registry + "quota-exceeded", "Quota Exceeded", "rate_limit_exceeded", "Too many requests.", "rate_limit_error"},
	Cost: {registry + "quota-exceeded", "Quota Exceeded", "rate_limit_exceeded",
		"The request costs more than the limit ever allows at once.", "rate_limit_error"},
	Zero: {registry + "quota-exceeded", "Quota Exceeded", "rate_limit_exceeded", "The limit of this client is 0.",
		"rate_limit_error"},
	AtOnce: {registry + "quota-exceeded", "Quota Exceeded", "concurrency_limit_exceeded", "", "rate_limit_error"},

	Banned:    {"", "Forbidden", "banned", "Requests from this client are not accepted.", "permission_error"},
	Denied:    {"", "Forbidden", "denied", "This request is not accepted.", "permission_error"},
	DeniedNow: {"", "Too Many Requests", "denied", "This request is not accepted now.", "rate_limit_error"},

	NoKey: {"", "Bad Request", "key_required",
		"The request lacks a value that its limits need, such as a user name, an API key or a host, or has several.",
		"invalid_request_error"},
	NoCredentials: {"", "Unauthorized", "key_required", "The request lacks credentials, such as an API key or a token.",
		"authentication_error"},
	TooLong: {"", "Content Too Large", "body_too_long", "The request's body is too long.", "invalid_request_error"},
	Late:    {"", "Request Timeout", "body_late", "The request's body did not arrive in time.", "invalid_request_error"},

	Unavailable: {registry + "temporary-reduced-capacity", "Temporary Reduced Capacity", "temporary_reduced_capacity",
		"The service is temporarily unable to take this request.", "overloaded_error"},
}
