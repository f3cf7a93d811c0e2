package serverlimit_test

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/pace/serverlimit"
)

// A vector is a response as a provider's documentation, or a dump of one, shows it, and what
// is to be read of it. Where a page describes a field without an example, the value is ours, as
// is most often the Date.
type vector struct {
	name   string
	source string
	status string
	fields string
	body   string
	want   string // as tell writes it
}

var vectors = []vector{
	// GitHub
	{"GitHub", "https://github.com/KnpLabs/php-github-api/pull/1072", "200 OK", `
		Date: Mon, 13 Jun 2022 11:48:53 GMT
		X-GitHub-Request-Id: C0F6:1D2A
		X-RateLimit-Limit: 30
		X-RateLimit-Remaining: 14
		X-RateLimit-Reset: 1655120964
		X-RateLimit-Used: 16
		X-RateLimit-Resource: search`, "",
		"served | search 14/30 in 31s ±1s"},
	{"GitHub, primary limit, 403", "https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api", "403 Forbidden", `
		Date: Mon, 13 Jun 2022 11:48:53 GMT
		X-GitHub-Request-Id: C0F6:1D2A
		X-RateLimit-Limit: 60
		X-RateLimit-Remaining: 0
		X-RateLimit-Reset: 1655120964
		X-RateLimit-Used: 60
		X-RateLimit-Resource: core`, "",
		"limited, wait 31s ±1s | core 0/60 in 31s ±1s"},
	{"GitHub, primary limit, 429", "https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api", "429 Too Many Requests", `
		Date: Mon, 13 Jun 2022 11:48:53 GMT
		X-GitHub-Request-Id: C0F6:1D2A
		X-RateLimit-Limit: 5000
		X-RateLimit-Remaining: 0
		X-RateLimit-Reset: 1655120964`, "",
		"limited, wait 31s ±1s | - 0/5000 in 31s ±1s"},
	{"GitHub, secondary limit, with Retry-After", "https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api", "403 Forbidden", `
		Date: Mon, 13 Jun 2022 11:48:53 GMT
		Retry-After: 60
		X-GitHub-Request-Id: C0F6:1D2A
		X-RateLimit-Limit: 30
		X-RateLimit-Remaining: 14
		X-RateLimit-Reset: 1655120964
		X-RateLimit-Resource: search`, "",
		"limited, wait 1m0s ±1s | search 14/30 in 31s ±1s"},
	{"GitHub, secondary limit, fields alone", "https://github.com/KnpLabs/php-github-api/pull/1072", "403 Forbidden", `
		Date: Mon, 13 Jun 2022 11:48:53 GMT
		X-GitHub-Request-Id: C0F6:1D2A
		X-RateLimit-Limit: 30
		X-RateLimit-Remaining: 14
		X-RateLimit-Reset: 1655120964
		X-RateLimit-Resource: search`, "",
		"served, the body tells | search 14/30 in 31s ±1s"},
	{"GitHub, secondary limit, with the body", "https://github.com/app-sre/github-mirror/pull/62", "403 Forbidden", `
		Date: Mon, 13 Jun 2022 11:48:53 GMT
		X-GitHub-Request-Id: C0F6:1D2A
		X-RateLimit-Limit: 30
		X-RateLimit-Remaining: 14
		X-RateLimit-Reset: 1655120964
		X-RateLimit-Resource: search`,
		`{"documentation_url": "https://docs.github.com/en/free-pro-team@latest/rest/overview/resources-in-the-rest-api#secondary-rate-limits", "message": "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."}`,
		"limited, wait 1m0s ±1s | search 14/30 in 31s ±1s"},
	{"GitHub, secondary limit, 429 without fields", "https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api", "429 Too Many Requests", `
		X-GitHub-Request-Id: C0F6:1D2A`, "",
		"limited, wait 1m0s ±1s"},
	{"GitHub, no permission", "https://docs.github.com/rest/using-the-rest-api/troubleshooting-the-rest-api", "403 Forbidden", `
		Date: Mon, 13 Jun 2022 11:48:53 GMT
		X-GitHub-Request-Id: C0F6:1D2A
		X-RateLimit-Limit: 5000
		X-RateLimit-Remaining: 4999
		X-RateLimit-Reset: 1655120964`, `{"message":"Resource not accessible by integration"}`,
		"served | - 4999/5000 in 31s ±1s"},
	{"GitHub, from a cache of this process", "https://github.com/gregjones/httpcache", "200 OK", `
		Date: Mon, 13 Jun 2022 11:48:53 GMT
		X-From-Cache: 1
		X-RateLimit-Limit: 60
		X-RateLimit-Remaining: 0
		X-RateLimit-Reset: 1655120964`, "",
		"served"},

	// The drafts
	{"draft 11", "https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-11", "200 OK", `
		RateLimit-Policy: "permin";q=50;w=60, "perhr";q=1000;w=3600
		RateLimit: "permin";r=5;t=30, "perhr";r=700;t=1800`, "",
		"served | permin 5/50 in 30s ±1s per 1m0s of requests | perhr 700/1000 in 30m0s ±1s per 1h0m0s of requests"},
	{"draft 11, on several lines", "https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-11", "200 OK", `
		RateLimit-Policy: "permin";q=50;w=60
		RateLimit-Policy: "perhr";q=1000;w=3600
		RateLimit: "perhr";r=700
		RateLimit: "permin";r=50`, "",
		"served | perhr 700/1000 per 1h0m0s of requests | permin 50/50 per 1m0s of requests"},
	{"draft 11, partition key and unit", "https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-11", "200 OK", `
		RateLimit-Policy: "peruser";q=65535;qu="content-bytes";w=10;pk=:sdfjLJUOUH==:
		RateLimit: "peruser";r=2048;t=4;pk=:sdfjLJUOUH==:;acme-burst=12.5`, "",
		"served | peruser 2048/65535 in 4s ±1s per 10s of content-bytes"},
	{"draft 11, refusal", "https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-11", "429 Too Many Requests", `
		Date: Mon, 05 Aug 2019 09:27:05 GMT
		Retry-After: 5
		RateLimit-Policy: "default";q=100;w=60
		RateLimit: "default";r=0;t=5`, "",
		"limited, wait 5s ±1s | default 0/100 in 5s ±1s per 1m0s of requests"},
	{"draft 07", "https://github.com/express-rate-limit/express-rate-limit (draft-7)", "200 OK", `
		RateLimit-Policy: 100;w=60
		RateLimit: limit=100, remaining=50, reset=5`, "",
		"served | - 50/100 in 5s ±1s per 1m0s"},
	{"draft 06", "https://github.com/express-rate-limit/express-rate-limit (draft-6)", "200 OK", `
		RateLimit-Policy: 100;w=60, 5000;w=86400
		RateLimit-Limit: 100
		RateLimit-Remaining: 50
		RateLimit-Reset: 50`, "",
		"served | - 50/100 in 50s ±1s per 1m0s"},
	{"Cloudflare", "https://developers.cloudflare.com/fundamentals/api/reference/limits", "200 OK", `
		Ratelimit: "default";r=50;t=30
		Ratelimit-Policy: "burst";q=100;w=60`, "",
		"served | default 50/? in 30s ±1s | burst ?/100 per 1m0s of requests"},
	{"Cloudflare, refusal", "https://developers.cloudflare.com/changelog/2025-09-03-rate-limiting-improvement", "429 Too Many Requests", `
		Ratelimit: "default";r=0;t=30
		Ratelimit-Policy: "default";q=1200;w=300
		Retry-After: 30`, "",
		"limited, wait 30s ±1s | default 0/1200 in 30s ±1s per 5m0s of requests"},
	{"Cloudflare, used up and served", "https://developers.cloudflare.com/fundamentals/api/reference/limits", "200 OK", `
		Ratelimit: "default";r=0
		Ratelimit-Policy: "burst";q=100;w=60`, "",
		"served, wait 1m0s ±0s | default 0/? in 1m0s ±0s | burst ?/100 per 1m0s of requests"},
	{"draft 11, used up and served, without t", "https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-11", "200 OK", `
		RateLimit-Policy: "permin";q=50;w=60, "perhr";q=1000;w=3600
		RateLimit: "permin";r=0, "perhr";r=700`, "",
		"served, wait 1m0s ±0s | permin 0/50 in 1m0s ±0s per 1m0s of requests | perhr 700/1000 per 1h0m0s of requests"},
	{"draft 11, beside fields that have no quota's name", "https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-11", "200 OK", `
		RateLimit-Policy: "permin";q=50;w=60
		RateLimit: "permin";r=0
		X-RateLimit-Limit: 50
		X-RateLimit-Remaining: 0
		X-RateLimit-Reset: 20`, "",
		"served, wait 20s ±1s | permin 0/50 in 20s ±1s per 1m0s of requests"},
	{"draft 11, more remains now", "https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-11", "200 OK", `
		RateLimit-Policy: "permin";q=50;w=60
		RateLimit: "permin";r=0;t=0`, "",
		"served | permin 0/50 per 1m0s of requests"},
	{"draft 11, requests in flight", "https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-11", "200 OK", `
		RateLimit-Policy: "busy";q=5;qu="concurrent-requests", "permin";q=50;w=60
		RateLimit: "busy";r=0`, "",
		"served | busy 0/5 of concurrent-requests | permin ?/50 per 1m0s of requests"},
	{"draft 06, used up without a reset", "https://github.com/express-rate-limit/express-rate-limit (draft-6)", "200 OK", `
		RateLimit-Policy: 100;w=60
		RateLimit-Limit: 100
		RateLimit-Remaining: 0`, "",
		"served, wait 1m0s ±0s | - 0/100 in 1m0s ±0s per 1m0s"},
	{"Docker Hub, used up", "https://docs.docker.com/docker-hub/usage/pulls/", "200 OK", `
		ratelimit-limit: 100;w=21600
		ratelimit-remaining: 0;w=21600`, "",
		"served, wait 6h0m0s ±0s | - 0/100 in 6h0m0s ±0s per 6h0m0s"},
	{"Docker Hub", "https://docs.docker.com/docker-hub/usage/pulls/", "200 OK", `
		ratelimit-limit: 100;w=21600
		ratelimit-remaining: 76;w=21600
		docker-ratelimit-source: 192.0.2.1`, "",
		"served | - 76/100 per 6h0m0s"},
	{"GitLab, where the limit that refused is another", "https://gitlab.com/gitlab-org/gitlab/-/issues/199738", "429 Too Many Requests", `
		Date: Thu, 30 Jan 2020 14:14:16 GMT
		RateLimit-Limit: 600
		RateLimit-Observed: 5
		RateLimit-Remaining: 595
		RateLimit-Reset: 1580393717
		RateLimit-ResetTime: Thu, 30 Jan 2020 14:15:17 GMT`, "",
		"limited | - 595/600 in 1m1s ±1s"},
	{"GitLab, with its name", "https://docs.gitlab.com/administration/settings/user_and_ip_rate_limits/", "429 Too Many Requests", `
		Date: Tue, 05 Jan 2021 10:59:30 GMT
		RateLimit-Limit: 60
		RateLimit-Name: throttle_authenticated_web
		RateLimit-Observed: 67
		RateLimit-Remaining: 0
		RateLimit-Reset: 1609844400
		RateLimit-ResetTime: Tue, 05 Jan 2021 11:00:00 GMT
		Retry-After: 30`, "",
		"limited, wait 30s ±1s | throttle_authenticated_web 0/60 in 30s ±1s"},

	// X-RateLimit-* and X-Rate-Limit-*
	{"X", "https://docs.x.com/fundamentals/rate-limits", "200 OK", `
		Date: Tue, 16 Jan 2024 15:50:00 GMT
		x-rate-limit-limit: 900
		x-rate-limit-remaining: 847
		x-rate-limit-reset: 1705420800`, "",
		"served | - 847/900 in 10m0s ±1s"},
	{"Zendesk", "https://developer.zendesk.com/documentation/ticketing/using-the-zendesk-api/best-practices-for-avoiding-rate-limiting/", "200 OK", `
		x-rate-limit: 700
		ratelimit-limit: 700
		x-rate-limit-remaining: 699
		ratelimit-remaining: 699
		ratelimit-reset: 41
		zendesk-ratelimit-tickets-index: total=100; remaining=99; resets=41`, "",
		"served | - 699/700 in 41s ±1s"},
	{"Zendesk, the older fields alone", "https://developer.zendesk.com/documentation/ticketing/using-the-zendesk-api/best-practices-for-avoiding-rate-limiting/", "200 OK", `
		X-Rate-Limit: 700
		X-Rate-Limit-Remaining: 699`, "",
		"served | - 699/700"},
	{"Datadog", "https://docs.datadoghq.com/api/latest/rate-limits", "429 Too Many Requests", `
		X-RateLimit-Limit: 600
		X-RateLimit-Period: 3600
		X-RateLimit-Remaining: 0
		X-RateLimit-Reset: 1260
		X-RateLimit-Name: logs_public_search_api`, "",
		"limited, wait 21m0s ±1s | logs_public_search_api 0/600 in 21m0s ±1s per 1h0m0s"},
	{"Linear, an instant in milliseconds", "https://linear.app/developers/rate-limiting", "200 OK", `
		Date: Tue, 16 Jan 2024 15:50:00 GMT
		X-RateLimit-Requests-Limit: 5000
		X-RateLimit-Requests-Remaining: 4998
		X-RateLimit-Requests-Reset: 1705420800000
		X-Complexity: 12
		X-RateLimit-Complexity-Limit: 250000
		X-RateLimit-Complexity-Remaining: 100
		X-RateLimit-Complexity-Reset: 1705420800000`, "",
		"served | complexity 100/250000 in 10m0s ±1s | requests 4998/5000 in 10m0s ±1s of requests"},
	{"Reddit", "https://github.com/reddit-archive/reddit/wiki/API", "200 OK", `
		X-Ratelimit-Used: 4
		X-Ratelimit-Remaining: 596.0
		X-Ratelimit-Reset: 347`, "",
		"served | - 596/? in 5m47s ±1s"},
	{"Discord", "https://docs.discord.com/developers/topics/rate-limits", "200 OK", `
		Date: Tue, 02 Aug 2016 21:23:42 GMT
		X-RateLimit-Limit: 5
		X-RateLimit-Remaining: 0
		X-RateLimit-Reset: 1470173023
		X-RateLimit-Reset-After: 1
		X-RateLimit-Bucket: abcd1234`, "",
		"served, wait 1s ±1s | abcd1234 0/5 in 1s ±1s"},
	{"Discord, refusal", "https://docs.discord.com/developers/topics/rate-limits", "429 TOO MANY REQUESTS", `
		Date: Tue, 02 Aug 2016 21:22:39 GMT
		Retry-After: 65
		X-RateLimit-Limit: 10
		X-RateLimit-Remaining: 0
		X-RateLimit-Reset: 1470173023.123
		X-RateLimit-Reset-After: 64.57
		X-RateLimit-Bucket: abcd1234
		X-RateLimit-Scope: user`, "",
		"limited, wait 1m5s ±1s | abcd1234 0/10 in 1m4.57s ±10ms"},
	{"Discord, refusal for all routes", "https://docs.discord.com/developers/topics/rate-limits", "429 TOO MANY REQUESTS", `
		Retry-After: 65
		X-RateLimit-Global: true
		X-RateLimit-Scope: global`, "",
		"limited, wait 1m5s ±1s"},
	{"HubSpot", "https://developers.hubspot.com/docs/guides/apps/api-usage/usage-details", "200 OK", `
		X-HubSpot-RateLimit-Daily: 250000
		X-HubSpot-RateLimit-Daily-Remaining: 249900
		X-HubSpot-RateLimit-Interval-Milliseconds: 10000
		X-HubSpot-RateLimit-Max: 100
		X-HubSpot-RateLimit-Remaining: 99
		X-HubSpot-RateLimit-Secondly: 10
		X-HubSpot-RateLimit-Secondly-Remaining: 9`, "",
		"served | secondly 9/10 per 1s | - 99/100 per 10s | daily 249900/250000 per 24h0m0s"},
	{"Kong", "https://developer.konghq.com/plugins/rate-limiting/", "200 OK", `
		X-RateLimit-Remaining-Minute: 2
		RateLimit-Remaining: 2
		RateLimit-Limit: 3
		RateLimit-Reset: 41
		X-RateLimit-Limit-Minute: 3`, "",
		"served | - 2/3 in 41s ±1s | minute 2/3 per 1m0s"},
	{"Kong, the minute used up", "https://developer.konghq.com/plugins/rate-limiting/", "200 OK", `
		X-RateLimit-Remaining-Hour: 5000
		X-RateLimit-Limit-Hour: 10000
		X-RateLimit-Remaining-Minute: 0
		X-RateLimit-Limit-Minute: 3
		RateLimit-Reset: 41`, "",
		"served, wait 41s ±1s | minute 0/3 in 41s ±1s per 1m0s | hour 5000/10000 per 1h0m0s | - ?/? in 41s ±1s"},
	{"Kong, without its nameless fields", "https://developer.konghq.com/plugins/rate-limiting/", "200 OK", `
		X-RateLimit-Remaining-Minute: 0
		X-RateLimit-Limit-Minute: 3`, "",
		"served, wait 1m0s ±0s | minute 0/3 in 1m0s ±0s per 1m0s"},
	{"agent.ai, a reset in two forms", "https://docs.agent.ai/ratelimits", "200 OK", `
		Date: Wed, 25 Nov 2026 10:00:00 GMT
		ratelimit-limit: 1000
		ratelimit-remaining: 0
		ratelimit-reset-date: 2026-11-25T10:02:00.000Z`, "",
		"served, wait 2m0s ±1s | - 0/1000 in 2m0s ±1s"},
	{"WHOOP, policies with window", "https://developer.whoop.com/docs/developing/rate-limiting", "200 OK", `
		X-RateLimit-Limit: 100, 100;window=60, 10000;window=86400
		X-RateLimit-Remaining: 0`, "",
		"served, wait 1m0s ±0s | - 0/100 in 1m0s ±0s per 1m0s"},
	{"lemlist, a date of JavaScript", "https://developer.lemlist.com/api-reference/getting-started/rate-limits", "200 OK", `
		Date: Tue, 16 Feb 2021 08:02:40 GMT
		X-RateLimit-Limit: 20
		X-RateLimit-Remaining: 0
		X-RateLimit-Reset: Tue Feb 16 2021 09:02:42 GMT+0100 (Central European Standard Time)`, "",
		"served, wait 2s ±1s | - 0/20 in 2s ±1s"},
	{"MailerLite, a date and a time", "https://developers-classic.mailerlite.com/docs/api-rate-limits", "200 OK", `
		Date: Tue, 16 Feb 2021 08:02:40 GMT
		X-RateLimit-Limit: 60
		X-RateLimit-Remaining: 0
		X-RateLimit-Reset: 2021-02-16 08:03:10`, "",
		"served, wait 30s ±1s | - 0/60 in 30s ±1s"},
	{"Mastodon", "https://docs.joinmastodon.org/api/rate-limits/", "200 OK", `
		Date: Mon, 20 Dec 2021 13:42:29 GMT
		X-RateLimit-Limit: 300
		X-RateLimit-Remaining: 298
		X-RateLimit-Reset: 2021-12-20T13:45:00.630990Z`, "",
		"served | - 298/300 in 2m31.63099s ±1s"},
	{"Atlassian Jira", "https://developer.atlassian.com/cloud/jira/platform/rate-limiting/", "429 Too Many Requests", `
		Date: Thu, 26 Mar 2026 15:25:28 GMT
		Retry-After: 2072
		X-RateLimit-Limit: 350
		X-RateLimit-Remaining: 0
		X-RateLimit-Reset: 2026-03-26T16:00Z
		X-RateLimit-NearLimit: true
		RateLimit-Reason: jira-quota-global-based`, "",
		"limited, wait 34m32s ±1s | jira-quota-global-based 0/350 in 34m32s ±1m0s"},
	{"Atlassian Jira, used up and served", "https://developer.atlassian.com/cloud/jira/platform/rate-limiting/", "200 OK", `
		Date: Wed, 25 Nov 2026 10:00:00 GMT
		X-RateLimit-Limit: 350
		X-RateLimit-Remaining: 0
		X-RateLimit-Reset: 2026-11-25T10:15Z`, "",
		"served, wait 15m0s ±1m0s | - 0/350 in 15m0s ±1m0s"},
	{"Confluence Data Center", "https://confluence.atlassian.com/conf87/_ratelimiting_httpheaders-1333822054.html", "200 OK", `
		X-RateLimit-Limit: 25
		X-RateLimit-Remaining: 0
		X-RateLimit-Interval-Seconds: 60
		X-RateLimit-FillRate: 5`, "",
		"served, wait 1m0s ±0s | - 0/25 in 1m0s ±0s per 1m0s"},
	{"Atlassian Jira, beta fields", "https://community.developer.atlassian.com/t/2026-point-based-rate-limits/97828", "200 OK", `
		Date: Thu, 26 Mar 2026 15:24:52 GMT
		Beta-Ratelimit-Policy: "tenant-app-quota";q=100100;w=3600
		Beta-Ratelimit: "tenant-app-quota";r=17842;t=2107
		X-Beta-Ratelimit-Reason: jira-quota-tenant-based
		X-Beta-Ratelimit-Nearlimit: true
		X-Ratelimit-Limit: 350
		X-Ratelimit-Remaining: 349`, "",
		"served | - 349/350"},
	{"a quota that is not in force, used up", "https://community.developer.atlassian.com/t/2026-point-based-rate-limits/97828", "200 OK", `
		Report-Only-RateLimit: "a";r=0;t=60
		Preview-RateLimit-Remaining: 0
		Preview-RateLimit-Reset: 60
		X-Beta-RateLimit-Remaining: 0`, "",
		"served"},
	{"a refusal by a quota in beta", "https://community.developer.atlassian.com/t/2026-point-based-rate-limits/97828", "429 Too Many Requests", `
		Beta-RateLimit: "a";r=0;t=60`, "",
		"limited, wait 1m0s ±1s | a 0/? in 1m0s ±1s"},
	{"Azure Resource Manager", "https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling", "200 OK", `
		x-ms-ratelimit-remaining-subscription-reads: 11999
		x-ms-ratelimit-remaining-resource: Microsoft.Compute/GetVMScaleSet3Min;197,Microsoft.Compute/GetVMScaleSet30Min;1297`, "",
		"served | subscription-reads 11999/?"},
	{"Amazon's Selling Partner API, whose limit is a rate", "https://developer-docs.amazon.com/sp-api/docs/usage-plans-and-rate-limits", "200 OK", `
		x-amzn-RateLimit-Limit: 0.0167`, "",
		"served"},
	{"Shopify", "https://shopify.dev/docs/api/admin-rest/usage/rate-limits", "200 OK", `
		X-Shopify-Shop-Api-Call-Limit: 32/40`, "",
		"served | - 8/40"},
	{"Shopify, refusal", "https://shopify.dev/docs/api/admin-rest/usage/rate-limits", "429 Too Many Requests", `
		X-Shopify-Shop-Api-Call-Limit: 40/40
		Retry-After: 2.0`, "",
		"limited, wait 2s ±100ms | - 0/40"},

	{"HubSpot, ten seconds used up", "https://developers.hubspot.com/docs/guides/apps/api-usage/usage-details", "200 OK", `
		X-HubSpot-RateLimit-Daily: 250000
		X-HubSpot-RateLimit-Daily-Remaining: 249900
		X-HubSpot-RateLimit-Interval-Milliseconds: 10000
		X-HubSpot-RateLimit-Max: 100
		X-HubSpot-RateLimit-Remaining: 0`, "",
		"served, wait 10s ±0s | - 0/100 in 10s ±0s per 10s | daily 249900/250000 per 24h0m0s"},

	// Models
	{"Mistral, whose quotas end with a period", "https://github.com/mistralai/client-ts/issues/169", "200 OK", `
		x-ratelimit-limit-tokens-minute: 5000000
		x-ratelimit-remaining-tokens-minute: 0
		x-ratelimit-tokens-query-cost: 52
		x-ratelimit-limit-req-minute: 720
		x-ratelimit-remaining-req-minute: 717`, "",
		"served, wait 1m0s ±0s | tokens-minute 0/5000000 in 1m0s ±0s per 1m0s of tokens | req-minute 717/720 per 1m0s"},
	{"a period of several minutes", "", "200 OK", `
		x-ratelimit-limit-tokens-5-minute: 25000000
		x-ratelimit-remaining-tokens-5-minute: 0`, "",
		"served, wait 5m0s ±0s | tokens-5-minute 0/25000000 in 5m0s ±0s per 5m0s of tokens"},
	{"Cerebras", "https://inference-docs.cerebras.ai/support/rate-limits", "200 OK", `
		x-ratelimit-limit-requests-day: 14400
		x-ratelimit-limit-tokens-minute: 60000
		x-ratelimit-remaining-requests-day: 14000
		x-ratelimit-remaining-tokens-minute: 0
		x-ratelimit-reset-requests-day: 33011.382867097855
		x-ratelimit-reset-tokens-minute: 11.382867097854614`, "",
		"served, wait 11.382867097s ±1ns | tokens-minute 0/60000 in 11.382867097s ±1ns per 1m0s of tokens | requests-day 14000/14400 in 9h10m11.382867097s ±1ns per 24h0m0s of requests"},
	{"the tokens of a provider whose reset has no quota's name", "https://docs.claude.com/en/api/rate-limits", "200 OK", `
		x-ratelimit-remaining-requests: 59
		x-ratelimit-remaining-tokens: 0
		x-ratelimit-reset: 17`, "",
		"served, wait 17s ±1s | tokens 0/? in 17s ±1s of tokens | requests 59/? of requests | - ?/? in 17s ±1s"},
	{"OpenAI", "https://platform.openai.com/docs/guides/rate-limits", "200 OK", `
		x-ratelimit-limit-requests: 60
		x-ratelimit-limit-tokens: 150000
		x-ratelimit-remaining-requests: 59
		x-ratelimit-remaining-tokens: 149984
		x-ratelimit-reset-requests: 1s
		x-ratelimit-reset-tokens: 6m0s`, "",
		"served | requests 59/60 in 1s ±1s of requests | tokens 149984/150000 in 6m0s ±1s of tokens"},
	{"OpenAI, in milliseconds", "https://community.openai.com/t/how-to-get-rate-limit-reset-time-for-response-api/1268905", "200 OK", `
		x-ratelimit-limit-requests: 5000
		x-ratelimit-limit-tokens: 160000
		x-ratelimit-limit-tokens_usage_based: 160000
		x-ratelimit-remaining-requests: 4999
		x-ratelimit-remaining-tokens: 159976
		x-ratelimit-remaining-tokens_usage_based: 159976
		x-ratelimit-reset-requests: 12ms
		x-ratelimit-reset-tokens: 9ms
		x-ratelimit-reset-tokens_usage_based: 9ms`, "",
		"served | requests 4999/5000 in 12ms ±1ms of requests | tokens 159976/160000 in 9ms ±1ms of tokens | tokens_usage_based 159976/160000 in 9ms ±1ms of tokens"},
	{"OpenAI, refusal", "https://github.com/openai/openai-python/blob/main/src/openai/_base_client.py", "429 Too Many Requests", `
		retry-after: 1
		retry-after-ms: 350
		x-should-retry: true
		x-ratelimit-limit-tokens: 150000
		x-ratelimit-remaining-tokens: 20
		x-ratelimit-reset-tokens: 59.992s`, "",
		"limited, wait 350ms ±1ms, retry | tokens 20/150000 in 59.992s ±1ms of tokens"},
	{"OpenAI, not to be retried", "https://github.com/openai/openai-python/blob/main/src/openai/_base_client.py", "429 Too Many Requests", `
		x-should-retry: false`, "",
		"limited, do not retry"},
	{"Azure OpenAI, with -1 for unknown", "https://github.com/openai/openai-dotnet/issues/838", "429 Too Many Requests", `
		x-ratelimit-limit-tokens: -1
		x-ratelimit-remaining-tokens: -1
		x-ratelimit-reset-tokens: 0`, "",
		"limited"},
	{"Anthropic", "https://docs.claude.com/en/api/rate-limits", "200 OK", `
		Date: Sat, 25 Oct 2025 11:59:00 GMT
		anthropic-ratelimit-requests-limit: 50
		anthropic-ratelimit-requests-remaining: 49
		anthropic-ratelimit-requests-reset: 2025-10-25T12:00:00Z
		anthropic-ratelimit-tokens-limit: 50000
		anthropic-ratelimit-tokens-remaining: 49500
		anthropic-ratelimit-tokens-reset: 2025-10-25T12:01:00Z`, "",
		"served | requests 49/50 in 1m0s ±1s of requests | tokens 49500/50000 in 2m0s ±1s of tokens"},
	{"Anthropic, refusal", "https://docs.claude.com/en/api/rate-limits", "429 Too Many Requests", `
		Date: Sat, 25 Oct 2025 11:59:00 GMT
		retry-after: 60
		anthropic-ratelimit-input-tokens-limit: 50000
		anthropic-ratelimit-input-tokens-remaining: 0
		anthropic-ratelimit-input-tokens-reset: 2025-10-25T12:01:00Z
		anthropic-ratelimit-requests-remaining: 3`, "",
		"limited, wait 1m0s ±1s | input-tokens 0/50000 in 2m0s ±1s of tokens | requests 3/? of requests"},
	{"Anthropic, without Retry-After", "https://github.com/anthropics/anthropic-sdk-typescript/issues/357", "429 Too Many Requests", `
		Date: Sat, 25 Oct 2025 11:59:00 GMT
		anthropic-ratelimit-requests-remaining: 0
		anthropic-ratelimit-requests-reset: 2025-10-25T12:00:00Z
		anthropic-ratelimit-tokens-remaining: 0
		anthropic-ratelimit-tokens-reset: 2025-10-25T12:01:00Z`, "",
		"limited, wait 2m0s ±1s | tokens 0/? in 2m0s ±1s of tokens | requests 0/? in 1m0s ±1s of requests"},

	{"Anthropic, overloaded", "https://docs.claude.com/en/api/errors", "529 Overloaded", `
		retry-after: 20
		x-should-retry: true`, "",
		"limited, wait 20s ±1s, retry"},

	// What bodies alone tell
	{"Gemini, unread", "https://github.com/letterstory/lettertrace/pull/34", "429 Too Many Requests", `
		Content-Type: application/json; charset=UTF-8`, "",
		"limited, the body tells"},
	{"Gemini", "https://github.com/letterstory/lettertrace/pull/34", "429 Too Many Requests", `
		Content-Type: application/json; charset=UTF-8`,
		`{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "58s"}]}}`,
		"limited, wait 58s ±1s"},
	{"Gemini, with decimals", "https://github.com/dcdpr/jp/pull/1061", "429 Too Many Requests", `
		Content-Type: application/json; charset=UTF-8`,
		`[{"error": {"code": 429, "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "45.837906927s"}]}}]`,
		"limited, wait 45.837906927s ±1ms"},
	{"somebody who writes of Gemini's delay", "", "429 Too Many Requests", `
		Content-Type: application/json`, `{"error": "what does \"retryDelay\": \"58s\" mean?"}`,
		"limited"},

	// Retry-After, or less
	{"a number of seconds", "https://www.rfc-editor.org/rfc/rfc9110#field.retry-after", "503 Service Unavailable", `
		Retry-After: 120`, "",
		"limited, wait 2m0s ±1s"},
	{"a date", "https://www.rfc-editor.org/rfc/rfc9110#field.retry-after", "503 Service Unavailable", `
		Date: Fri, 31 Dec 1999 23:58:59 GMT
		Retry-After: Fri, 31 Dec 1999 23:59:59 GMT`, "",
		"limited, wait 1m0s ±1s"},
	{"a date with UTC for GMT", "https://github.com/sethvargo/go-limiter/blob/main/httplimit/middleware.go", "429 Too Many Requests", `
		Date: Fri, 31 Dec 1999 23:58:59 GMT
		Retry-After: Fri, 31 Dec 1999 23:59:59 UTC`, "",
		"limited, wait 1m0s ±1s"},
	{"Slack", "https://docs.slack.dev/apis/web-api/rate-limits/", "429 Too Many Requests", `
		Retry-After: 30`, "",
		"limited, wait 30s ±1s"},
	{"Stripe", "https://docs.stripe.com/rate-limits", "429 Too Many Requests", `
		Stripe-Rate-Limited-Reason: endpoint-concurrency
		Stripe-Should-Retry: true`, "",
		"limited, retry | endpoint-concurrency ?/? of concurrent-requests"},
	{"a reset without a name that is later than the window", "", "200 OK", `
		X-RateLimit-Remaining-Minute: 0
		X-RateLimit-Remaining-Hour: 7
		X-RateLimit-Reset: 3000`, "",
		"served, wait 1m0s ±0s | minute 0/? in 1m0s ±0s per 1m0s | hour 7/? per 1h0m0s | - ?/? in 50m0s ±1s"},
	{"a reset without a name that has passed", "", "200 OK", `
		X-RateLimit-Remaining-Minute: 0
		X-RateLimit-Reset: 0`, "",
		"served, wait 1m0s ±0s | minute 0/? in 1m0s ±0s per 1m0s"},
	{"the same quota in two dialects, of which more remains now", "", "200 OK", `
		RateLimit-Policy: "a";q=5;w=60
		RateLimit: "a";r=0
		X-RateLimit-Limit: 5
		X-RateLimit-Remaining: 0
		X-RateLimit-Reset: 0`, "",
		"served | a 0/5 per 1m0s of requests"},
	{"requests in flight, beside a reset of another quota", "", "200 OK", `
		X-RateLimit-Concurrent-Limit: 5
		X-RateLimit-Concurrent-Remaining: 0
		X-RateLimit-Limit: 5000
		X-RateLimit-Remaining: 4000
		X-RateLimit-Reset: 3000`, "",
		"served | concurrent 0/5 of concurrent-requests | - 4000/5000 in 50m0s ±1s"},
	{"Azure Cosmos DB", "https://learn.microsoft.com/rest/api/cosmos-db/common-cosmosdb-rest-response-headers", "429 Too Many Requests", `
		x-ms-retry-after-ms: 34`, "",
		"limited, wait 34ms ±1ms"},
	{"Binance, banned", "https://developers.binance.com/docs/binance-spot-api-docs/rest-api/limits", "418 I'm a teapot", `
		Retry-After: 120
		X-MBX-USED-WEIGHT-1M: 7000`, "",
		"limited, wait 2m0s ±1s"},
	{"nginx, limit_req", "https://nginx.org/en/docs/http/ngx_http_limit_req_module.html", "503 Service Temporarily Unavailable", `
		Server: nginx`, "",
		"served"},
	{"429 without any field", "https://www.rfc-editor.org/rfc/rfc6585#section-4", "429 Too Many Requests", ``, "",
		"limited"},
	{"a poll that is asked for", "https://learn.microsoft.com/azure/azure-resource-manager/management/async-operations", "202 Accepted", `
		Retry-After: 15`, "",
		"served"},
}

func TestResponsesOfProvidersAreReadAsTheyAreMeant(t *testing.T) {
	t.Parallel()
	for _, v := range vectors {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			said := serverlimit.Read(parse(t, v.status, v.fields))
			if v.body != "" {
				said = serverlimit.ReadWithBody(parse(t, v.status, v.fields), []byte(v.body))
			}
			require.Equal(t, v.want, tell(said), v.source)
		})
	}
}

// parse has net/http read a response of such a head.
func parse(t testing.TB, status, fields string) *http.Response {
	t.Helper()
	var head strings.Builder
	head.WriteString("HTTP/1.1 " + status + "\r\n")
	for line := range strings.Lines(fields) {
		if line = strings.TrimSpace(line); line != "" {
			head.WriteString(line + "\r\n")
		}
	}
	r, err := http.ReadResponse(bufio.NewReader(strings.NewReader(head.String()+"\r\n")), nil)
	require.NoError(t, err)
	return r
}

// tell writes a reading on a line.
func tell(said serverlimit.Reading) string {
	s := "served"
	if said.Limited {
		s = "limited"
	}
	if said.Wait != 0 || said.Unsure != 0 {
		s += fmt.Sprintf(", wait %v ±%v", said.Wait, said.Unsure)
	}
	s += []string{"", ", retry", ", do not retry"}[said.Retry]
	if said.BodyTells {
		s += ", the body tells"
	}
	if said.Quota != (serverlimit.Quota{Limit: serverlimit.Unsaid, Remaining: serverlimit.Unsaid}) {
		for _, q := range append([]serverlimit.Quota{said.Quota}, said.Others...) {
			s += " | " + tellQuota(q)
		}
	}
	return s
}

func tellQuota(q serverlimit.Quota) string {
	count := func(n int64) string {
		if n == serverlimit.Unsaid {
			return "?"
		}
		return fmt.Sprint(n)
	}
	s := q.Name
	if s == "" {
		s = "-"
	}
	s += " " + count(q.Remaining) + "/" + count(q.Limit)
	if q.Reset != 0 || q.Unsure != 0 {
		s += fmt.Sprintf(" in %v ±%v", q.Reset, q.Unsure)
	}
	if q.Window != 0 {
		s += fmt.Sprintf(" per %v", q.Window)
	}
	if q.Unit != "" {
		s += " of " + q.Unit
	}
	return s
}
