# What would apt do, and is dpkg done? $1: the one source. Runs in a tree that is read-only; /run is memory.
# After each step a line: @goldsmith STEP CODE.
folder=/run/goldsmith-hygiene
mkdir -p "$folder/sources" "$folder/lists/partial" "$folder/cache/archives/partial" || exit 9
printf '%s\n' "$1" > "$folder/sources/goldsmith.list" || exit 9
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
set -- -q -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$folder/sources" \
    -o "Dir::State::lists=$folder/lists" -o "Dir::Cache=$folder/cache" -o "Dir::Log=$folder" \
    -o APT::Sandbox::User=root -o Debug::NoLocking=1
dpkg --audit < /dev/null 2>&1; echo "@goldsmith audit $?"
apt-get "$@" --error-on=any update < /dev/null 2>&1; echo "@goldsmith update $?"
apt-get "$@" check < /dev/null 2>&1; echo "@goldsmith check $?"
apt-get "$@" --simulate dist-upgrade < /dev/null 2>&1; echo "@goldsmith upgrade $?"
