-- Written by `mirab slurm lua`. Slurm's controller calls it for each job that is submitted or changed.
--
-- What it does, and nothing else:
--   1. A job of a governed account is held when it is submitted (priority 0), with a mark in the administrators'
--      comment by which mirab knows its own holds. Jobs that their users submit on hold stay theirs.
--   2. #MIRAB lines of its script become the word mirab:... of its comment, unless the comment has one already.
--   3. `scontrol hold` and `scontrol release` by the user of a job that mirab holds set and clear the word mirab-hold in
--      its comment: Slurm itself keeps no trace of a second hold.
--
-- Governed accounts stand in the file below, one a line, * for all. Without that file nothing is changed: taking it away
-- is the way out. An error in here never keeps a job from being submitted.
local GOVERNED = "@GOVERNED@"
local HELD, USER_HOLD = "mirab:held", "mirab-hold"
local UNSET = 4294967294
local WORDS = {["min-runtime"] = "min", ["min"] = "min", grace = "grace", signal = "signal", checkpoint = "checkpoint",
               restart = "restart", label = "label"}

local function governed(account)
  local file = io.open(GOVERNED, "r")
  if file == nil then return false end
  local found = false
  for line in file:lines() do
    local name = line:match("^%s*(.-)%s*$")
    if name == "*" or (account ~= nil and name == account) then found = true end
  end
  file:close()
  return found
end

local function account_of(job, record)
  if job.account ~= nil and job.account ~= "" then return job.account end
  if record ~= nil then return record.account end
  return job.default_account
end

-- #MIRAB lines above the first line that is neither empty nor a comment, as key=value,key=value
local function contract_of(script)
  local found = {}
  for line in (script .. "\n"):gmatch("(.-)\n") do
    local rest = line:match("^#MIRAB%s+(.*)$")
    if rest ~= nil then
      for name, value in rest:gmatch("%-%-([%w%-]+)[=%s]+([^%s,]+)") do
        if WORDS[name] ~= nil then table.insert(found, WORDS[name] .. "=" .. value) end
      end
      if rest:find("%-%-no%-resume") then table.insert(found, "resume=no") end
    elseif line ~= "" and line:sub(1, 1) ~= "#" then
      break
    end
  end
  return table.concat(found, ",")
end

local function words(text)
  local found = {}
  for word in (text or ""):gmatch("%S+") do table.insert(found, word) end
  return found
end

local function with(text, mark)
  local found = words(text)
  for _, word in ipairs(found) do
    if word == mark then return text end
  end
  table.insert(found, mark)
  return table.concat(found, " ")
end

local function without(text, mark)
  local kept = {}
  for _, word in ipairs(words(text)) do
    if word ~= mark then table.insert(kept, word) end
  end
  return table.concat(kept, " ")
end

local function submitted(job)
  if not governed(account_of(job)) then return end
  if job.script ~= nil and not (job.comment or ""):find("mirab:", 1, true) then
    local contract = contract_of(job.script)
    if contract ~= "" then job.comment = with(job.comment, "mirab:" .. contract) end
  end
  if job.priority == nil or job.priority == UNSET then
    job.priority = 0
    job.admin_comment = HELD
  end
end

local function changed(job, record, uid)
  if uid == 0 or job.priority == nil or job.priority == UNSET or not governed(account_of(job, record)) then return end
  if record.priority ~= 0 or not (record.admin_comment or ""):find(HELD, 1, true) then return end
  if job.priority == 0 then
    job.comment = with(record.comment, USER_HOLD)
  else
    job.comment = without(record.comment, USER_HOLD)
    job.priority = UNSET
  end
end

function slurm_job_submit(job_desc, part_list, submit_uid)
  local fine, problem = pcall(submitted, job_desc)
  if not fine then slurm.log_error("mirab: %s", tostring(problem)) end
  return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  local fine, problem = pcall(changed, job_desc, job_rec, modify_uid)
  if not fine then slurm.log_error("mirab: %s", tostring(problem)) end
  return slurm.SUCCESS
end

return slurm
