package lab

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/PuerkitoBio/rehttp"
	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/cenkalti/backoff/v5"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/hashicorp/go-retryablehttp"
	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
	"github.com/stripe/stripe-go/v85"
	"resty.dev/v3"
)

// errRefused is what a caller without an error of its client's has.
var errRefused = errors.New("refused")

// goClients are clients in Go. Each call has a client of its own, so that none waits for another's refusal.
var goClients = []row{
	{name: "net/http", setup: "as it is", call: func(ctx context.Context, method, url string, body []byte) error {
		return do(ctx, http.DefaultClient, method, url, body)
	}},
	{name: "go-retryablehttp 0.7.8", setup: "`NewClient()`", call: func(ctx context.Context, method, url string, body []byte) error {
		c := retryablehttp.NewClient()
		c.Logger = nil
		r, err := retryablehttp.NewRequestWithContext(ctx, method, url, body)
		if err != nil {
			return err
		}
		return read(c.Do(r))
	}},
	{name: "resty 3.0.0-rc.4", setup: "`SetRetryCount(3)` and conditions for 429 and 5xx", call: func(ctx context.Context, method, url string, body []byte) error {
		c := resty.New().SetRetryCount(3).AddRetryConditions(resty.RetryConditionStatusTooManyRequests, resty.RetryConditionStatus5XX)
		defer c.Close()
		res, err := c.R().SetContext(ctx).SetBody(body).Execute(method, url)
		if err == nil && res.StatusCode() != http.StatusOK {
			err = errRefused
		}
		return err
	}},
	{name: "backoff 5.0.3", setup: "its example", call: func(ctx context.Context, method, url string, body []byte) error {
		_, err := backoff.Retry(ctx, func() (string, error) {
			r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
			if err != nil {
				return "", err
			}
			res, err := http.DefaultClient.Do(r)
			if err != nil {
				return "", err
			}
			defer res.Body.Close()
			if res.StatusCode == http.StatusTooManyRequests {
				if seconds, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil {
					return "", backoff.RetryAfter(seconds)
				}
			}
			if res.StatusCode != http.StatusOK {
				return "", errRefused
			}
			return "", nil
		})
		return err
	}},
	{name: "rehttp 1.4.0", setup: "`RetryStatuses(429, 503)`, 3 retries", call: func(ctx context.Context, method, url string, body []byte) error {
		c := &http.Client{Transport: rehttp.NewTransport(nil,
			rehttp.RetryAll(rehttp.RetryMaxRetries(3), rehttp.RetryStatuses(429, 503)), rehttp.ExpJitterDelay(time.Second, 10*time.Second))}
		return do(ctx, c, method, url, body)
	}},
	{name: "failsafe-go 0.9.8", setup: "`failsafehttp.NewRetryPolicyBuilder()`", call: func(ctx context.Context, method, url string, body []byte) error {
		c := &http.Client{Transport: failsafehttp.NewRoundTripper(nil, failsafehttp.NewRetryPolicyBuilder().Build())}
		return do(ctx, c, method, url, body)
	}},
	{name: "azcore 1.24.0", setup: "defaults", call: func(ctx context.Context, method, url string, body []byte) error {
		p := runtime.NewPipeline("lab", "0", runtime.PipelineOptions{}, &azcore.ClientOptions{})
		r, err := runtime.NewRequest(ctx, method, url)
		if err != nil {
			return err
		}
		if len(body) > 0 {
			if err := r.SetBody(seekable{bytes.NewReader(body)}, "text/plain"); err != nil {
				return err
			}
		}
		return read(p.Do(r))
	}},
	{name: "openai-go 3.99.0", setup: "defaults", post: true, call: func(ctx context.Context, _, url string, body []byte) error {
		c := openai.NewClient(openaioption.WithBaseURL(url), openaioption.WithAPIKey("lab"))
		_, err := c.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{Model: "m", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(string(body))}})
		return err
	}},
	{name: "anthropic-sdk-go 1.84.0", setup: "defaults", post: true, call: func(ctx context.Context, _, url string, body []byte) error {
		c := anthropic.NewClient(anthropicoption.WithBaseURL(url), anthropicoption.WithAPIKey("lab"))
		_, err := c.Messages.New(ctx, anthropic.MessageNewParams{Model: "m", MaxTokens: 1, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(string(body)))}})
		return err
	}},
	{name: "stripe-go 85.0.0", setup: "defaults", post: true, call: func(ctx context.Context, _, url string, body []byte) error {
		c := stripe.NewClient("sk_test_lab", stripe.WithBackends(stripe.NewBackendsWithConfig(&stripe.BackendConfig{URL: &url, LeveledLogger: &stripe.LeveledLogger{}})))
		_, err := c.V1Customers.Create(ctx, &stripe.CustomerCreateParams{Description: stripe.String(string(body))})
		return err
	}},
}

type seekable struct{ *bytes.Reader }

func (seekable) Close() error { return nil }

func do(ctx context.Context, c *http.Client, method, url string, body []byte) error {
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	return read(c.Do(r))
}

func read(res *http.Response, err error) error {
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	if res.StatusCode != http.StatusOK {
		err = errRefused
	}
	return err
}
