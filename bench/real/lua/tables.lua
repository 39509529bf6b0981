-- Tables: all ways to put N queens on a board.
local known = { [6] = 4, [7] = 40, [8] = 92, [9] = 352, [10] = 724, [11] = 2680, [12] = 14200 }

local function ways(size)
  local column, up, down = {}, {}, {}
  local function place(row)
    if row > size then
      return 1
    end
    local found = 0
    for at = 1, size do
      local rising, falling = row + at, row - at
      if not (column[at] or up[rising] or down[falling]) then
        column[at], up[rising], down[falling] = true, true, true
        found = found + place(row + 1)
        column[at], up[rising], down[falling] = nil, nil, nil
      end
    end
    return found
  end
  return place(1)
end

local size = tonumber(arg[1])
assert(ways(size) == known[size])
