-- Strings: words are made, joined, found by a pattern, and replaced by a function.
local words = tonumber(arg[1])
local letters = "etaoinshrdlu"
local made, state = {}, 1
for number = 1, words do
  local word = {}
  for at = 1, 3 + number % 5 do
    state = (state * 1103515245 + 12345) % 2147483648
    local which = state // 65536 % #letters + 1
    word[at] = letters:sub(which, which)
  end
  made[number] = table.concat(word)
end
local text = table.concat(made, " ")

local seen = 0
local longer = text:gsub("%a+", function(word)
  seen = seen + 1
  return word:upper() .. "!"
end)
assert(seen == words and #longer == #text + words)

local back = longer:gsub("!", ""):lower()
assert(back == text)
