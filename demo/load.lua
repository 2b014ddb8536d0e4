-- SPDX-License-Identifier: BSD-2-Clause
--
-- demo/load.lua - what wrk sends, and what it writes down.
--
--     LOAD_FILE=out wrk -t1 -c20 -d4 -s load.lua URL -- CONNECTIONS THINK_MS [burst] [HEADER=VALUE]...
--
-- Each connection is a client: it asks, waits for the answer, thinks for THINK_MS on average, and
-- asks again. The clients start spread over THINK_MS, or with `burst` all at once. Each request has
-- the headers; a value 1..N is another number of these in each, in turn.
--
-- The time of sending is the X-Request-Id, which the server sends back; so each answer has its own
-- latency here, and refused calls (503) stay apart from served ones. Lines of the file, times in
-- microseconds:
--
--     s ID                  sent
--     r ID STATUS LATENCY [BY]   answered; by the rule that refused it, or the fallback
--
-- LOAD_FILE.end gets the time of the end: what was sent and not answered has waited until then.

local ffi = require("ffi")
ffi.cdef [[
	struct demo_time { long s, ns; };
	int clock_gettime(int clock, struct demo_time *t);
]]
local CLOCK_MONOTONIC = 1
local time = ffi.new("struct demo_time")

local function now_us()
	ffi.C.clock_gettime(CLOCK_MONOTONIC, time)
	return tonumber(time.s) * 1000000 + math.floor(tonumber(time.ns) / 1000)
end

local file, clients, think_ms, burst
local headers, turns = {}, {}
local started, last_id = 0, nil

function init(args)
	for i = 3, #args do
		local name, value = args[i]:match("^(.-)=(.*)$")

		if name then
			headers[name] = value
			turns[name] = tonumber(value:match("^1%.%.(%d+)$"))
		end
	end
	file = io.open(os.getenv("LOAD_FILE"), "a")
	clients, think_ms, burst = tonumber(args[1]), tonumber(args[2]), args[3] == "burst"
	math.randomseed(clients + think_ms)
end

function delay()
	if started < clients then
		started = started + 1
		return burst and 0 or math.random(0, think_ms)
	end
	return math.random(math.floor(think_ms / 2), math.ceil(think_ms * 3 / 2))
end

function request()
	local id = now_us()

	if last_id == nil then -- wrk tries the script once and sends nothing
		last_id = 0
		return wrk.format("GET")
	end
	id = math.max(id, last_id + 1)
	file:write(string.format("s %d\n", id))
	if last_id == 0 then
		file:flush() -- demo/run waits for the first line
	end
	last_id = id
	headers["X-Request-Id"] = string.format("%d", id)
	for name, n in pairs(turns) do
		headers[name] = tostring((tonumber(headers[name]) or 0) % n + 1)
	end
	return wrk.format("GET", nil, headers)
end

function response(status, reply)
	local id = reply["X-Request-Id"]
	local by = reply["X-Refused-By"] or reply["X-Answered-By"]

	if id then
		file:write("r ", id, " ", status, " ", math.max(now_us() - tonumber(id), 0), by and " " .. by or "", "\n")
	end
end

function done()
	local f = io.open(os.getenv("LOAD_FILE") .. ".end", "w")

	f:write(string.format("%d", now_us()), "\n")
	f:close()
end
