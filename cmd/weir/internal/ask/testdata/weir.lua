-- Asks Weir about a request, and answers it if Weir refuses it. All of Weir's answers say no-store. HAProxy's own,
-- such as a 503 if Weir is away, do not.
core.register_action("weir", {"http-req"}, function(txn)
    local headers = txn.http:req_get_headers()
    for _, name in ipairs({"connection", "content-length", "transfer-encoding", "upgrade"}) do headers[name] = nil end
    headers["x-forwarded-method"] = {txn.f:method()}
    headers["x-forwarded-uri"] = {txn.f:pathq()}
    headers["x-forwarded-host"] = {txn.sf:req_fhdr("host")}
    headers["x-forwarded-for"] = {txn.f:src()}
    for name, values in pairs(headers) do -- those of a request are counted from 0
        local list = {}
        for _, value in pairs(values) do table.insert(list, value) end
        headers[name] = list
    end
    local answer = core.httpclient():get{url = "http://127.0.0.1:8082/forward", headers = headers}
    local caching = answer and answer.headers and answer.headers["cache-control"]
    if not caching or caching[0] ~= "no-store" then
        txn:set_var("txn.weir_away", true)
    elseif answer.status < 300 then
        for _, name in ipairs({"limit", "remaining", "reset"}) do
            local values = answer.headers["x-ratelimit-" .. name]
            if values then txn:set_var("txn.weir_" .. name, values[0]) end
        end
    else
        local reply = txn:reply{status = answer.status, body = answer.body}
        for field, values in pairs(answer.headers) do
            if field ~= "content-length" then for _, value in pairs(values) do reply:add_header(field, value) end end
        end
        txn:done(reply)
    end
end)
