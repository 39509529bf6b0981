-- Memory: binary trees are made and dropped, and closures over them.
local function tree(depth)
  if depth == 0 then
    return {}
  end
  return { tree(depth - 1), tree(depth - 1) }
end

local function counter(root)
  local function count(node)
    return node[1] and 1 + count(node[1]) + count(node[2]) or 1
  end
  return function()
    return count(root)
  end
end

local depth = tonumber(arg[1])
local kept = counter(tree(depth))
for small = 4, depth, 2 do
  for _ = 1, 1 << (depth - small) do
    assert(counter(tree(small))() == (1 << (small + 1)) - 1)
  end
end
assert(kept() == (1 << (depth + 1)) - 1)
