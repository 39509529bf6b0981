-- Calls and nothing else: Fibonacci numbers by their definition.
local function fib(n)
  if n < 2 then
    return n
  end
  return fib(n - 1) + fib(n - 2)
end

local n = tonumber(arg[1])
local first, second = 0, 1
for _ = 1, n do
  first, second = second, first + second
end
assert(fib(n) == first)
