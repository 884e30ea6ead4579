#!/bin/sh
# Takes a backup of a cluster into a volume, and restores one into the volumes of a new cluster.
#
#   backup.sh take       add Redis to the tables that were saved into .new, check it, name it, prune older ones
#   backup.sh restore    fill the new volumes of the first core and of the first Redis
#
# A backup is a folder, BACKUPS/CLUSTER/TIME, that has its name only when all of it is on disk:
#   SHARD.snapshot   a core's tables (flockmq ctl tables save): Redis has only what was trimmed from the log since
#   positions        where in the log they are
#   redis.rdb        Redis, a moment later. Its log continues all tables, so what is restored is as of this moment.
#   SHA256SUMS       of all of these
#
# A run takes the folder .new for its own before it looks into it, so one that begins meanwhile (by hand, beside that of
# the schedule) can't put newer tables beside its copy of Redis: one of the two may find none, and is tried again.
#
# BACKUPS          the folder of the volume with backups
# to take:         CLUSTER (its name), HOSTS (the servers of Redis), KEEP (how many backups stay),
#                  SECRETS (the folder with the administrator's `password`), TLS (with ca.crt; not set: in the clear)
# to restore:      BACKUP (CLUSTER/TIME, or CLUSTER: its newest), CORE and REDIS (the folders of the volumes)
# TMP              a folder for a moment
set -eu
umask 077 # backups have password hashes, and messages

PORT=6379
SHARDS="cluster route retained auth"
TIME='[0-9]\{8\}T[0-9]\{6\}Z'
# How long a replica may be behind the tables.
CATCH_UP_S=60
# How old is what a run left that was killed: more than any run may take.
LEFT_MIN=300
# On each volume: `filling` or `filled`, and the backup. It stays, so nothing is filled twice.
MARK=.flockmq-restored

say() { echo "backup.sh: $*" >&2; }
fail() { say "$*"; exit 1; }
flush() { sync "$@" 2>/dev/null || sync; } # a sync that takes no files flushes all

# --- take ---

cli() {
  password=$(cat "$SECRETS/password") # of valkey-cli's environment alone, and on no command line
  REDISCLI_AUTH=$password VALKEYCLI_AUTH=$password valkey-cli ${TLS:+--tls --cacert "$TLS/ca.crt"} -p $PORT "$@"
}

# continues_tables HOST: its log still has the entries where the tables are, so all that follow, too
continues_tables() {
  while read -r shard position; do
    found=$(cli -h "$1" eval_ro "return #redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])" 1 \
      "flockmq:{$shard}:log" "$position" </dev/null) || return 1
    [ "$found" = 1 ] || return 1
  done <"$new/positions"
}

# may_be_copied HOST: it is the only server, or a replica. A primary shows a copy that is under way as a replica, and
# Sentinels would remember it as one.
may_be_copied() {
  state=$(cli -h "$1" info replication | tr -d '\r') || return 1
  case $HOSTS in
    *' '*) case $state in *role:slave*master_link_status:up*) ;; *) return 1 ;; esac ;;
    *) case $state in *role:master*) ;; *) return 1 ;; esac ;;
  esac
}

choose_server() {
  deadline=$(($(date +%s) + CATCH_UP_S))
  while :; do
    for host in $HOSTS; do
      if may_be_copied "$host" && continues_tables "$host"; then server=$host; return 0; fi
    done
    [ "$(date +%s)" -lt $deadline ] || fail "none of $HOSTS can be copied: with replicas one of these must be in step" \
      "with the primary, and the log must have the tables' positions"
    sleep 1
  done
}

check_rdb() {
  ln -sf "$(command -v valkey-server)" "$TMP/valkey-check-rdb" # the server is this tool, too, by that name
  "$TMP/valkey-check-rdb" "$1" >"$TMP/check" 2>&1 || fail "$1 is broken: $(tail -n 3 "$TMP/check")"
}

backups_of() { ls "$BACKUPS/$1" 2>/dev/null | grep -x "$TIME" | sort; }

take() {
  saved=$BACKUPS/$CLUSTER/.new new=$BACKUPS/$CLUSTER/.new.$(uname -n).$$
  mv "$saved" "$new" || fail "$saved isn't there: the tables were not saved"
  trap 'rm -rf "$new"' EXIT # unless it has its name by then
  find "$BACKUPS/$CLUSTER" -mindepth 1 -maxdepth 1 -name '.new.*' -mmin +$LEFT_MIN -exec rm -rf {} +
  [ -s "$new/positions" ] || fail "$saved/positions isn't there: the tables were not saved"
  choose_server
  time=$(date -u +%Y%m%dT%H%M%SZ)
  cli -h "$server" --rdb "$new/redis.rdb" >"$TMP/rdb" 2>&1 || fail "$server can't be copied: $(tail -n 3 "$TMP/rdb")"
  check_rdb "$new/redis.rdb"
  continues_tables "$server" || fail "the log of $server was trimmed while it was copied: the next run may be luckier"
  (cd "$new" && sha256sum -- *.snapshot positions redis.rdb >SHA256SUMS)
  flush "$new"/* "$new"
  [ ! -e "$BACKUPS/$CLUSTER/$time" ] || fail "$CLUSTER/$time is there already"
  mv "$new" "$BACKUPS/$CLUSTER/$time"
  chmod o= "$BACKUPS/$CLUSTER" 2>/dev/null || : # an earlier release made it, with what is in it, for all
  flush "$BACKUPS/$CLUSTER"
  say "$CLUSTER/$time: $(du -sk "$BACKUPS/$CLUSTER/$time" | cut -f1) KiB, of Redis at $server"
  backups_of "$CLUSTER" | sort -r | tail -n +$((KEEP + 1)) | while read -r old; do
    rm -rf "${BACKUPS:?}/$CLUSTER/$old"
    say "$CLUSTER/$old: deleted, $KEEP newer ones are there"
  done
}

# --- restore ---

# state VOLUME: new (empty), filling (an earlier run ended amid it), filled, or used (by something else)
state() {
  if [ -s "$1/$MARK" ]; then
    cut -d ' ' -f 1 "$1/$MARK"
  elif ls -A "$1" | grep -qvx lost+found; then
    echo used
  else
    echo new
  fi
}

mark() {
  echo "$2 $backup" >"$1/$MARK.new"
  flush "$1/$MARK.new"
  mv "$1/$MARK.new" "$1/$MARK"
  flush "$1"
}

# fill VOLUME COMMAND: COMMAND copies into the empty volume; done once
fill() {
  [ "$(state "$1")" != filled ] || return 0
  mark "$1" filling
  find "$1" -mindepth 1 -maxdepth 1 ! -name lost+found ! -name $MARK -exec rm -rf {} +
  "$2"
  mark "$1" filled
}

# copy_tables: the core may run as another user than this job, but of the volume's group
copy_tables() {
  for shard in $SHARDS; do
    cp "$from/$shard.snapshot" "$CORE/"
    chmod 640 "$CORE/$shard.snapshot"
  done
  flush "$CORE"/*.snapshot "$CORE"
}

# copy_redis: the file becomes the base of an append-only file, which is all that a server with `appendonly` loads
copy_redis() {
  aof=$REDIS/appendonlydir
  mkdir "$aof"
  cp "$from/redis.rdb" "$aof/appendonly.aof.1.base.rdb"
  echo "file appendonly.aof.1.base.rdb seq 1 type b" >"$aof/appendonly.aof.manifest"
  flush "$aof"/* "$aof" "$REDIS"
}

restore() {
  backup=$BACKUP
  for volume in "$CORE" "$REDIS"; do
    case $(state "$volume") in
      used) fail "$volume isn't empty: a backup is restored into new volumes only" ;;
      filled) backup=$(cut -d ' ' -f 2 "$volume/$MARK") ;; # of the same one, though there may be a newer one by now
    esac
  done
  if [ "$(state "$CORE")$(state "$REDIS")" = filledfilled ]; then
    say "$backup was restored before"
    return 0
  fi
  case $backup in
    */*) ;;
    *)
      newest=$(backups_of "$backup" | tail -n 1)
      [ -n "$newest" ] || fail "there is no backup of $backup; there are of: $(ls "$BACKUPS")"
      backup=$backup/$newest ;;
  esac
  from=$BACKUPS/$backup
  [ -d "$from" ] || fail "there is no backup $backup; there are: $(cd "$BACKUPS" && ls -d -- */*Z 2>/dev/null | tr '\n' ' ')"
  for file in $(for shard in $SHARDS; do echo "$shard.snapshot"; done) positions redis.rdb; do
    grep -q "  $file\$" "$from/SHA256SUMS" || fail "$backup lacks the checksum of $file"
  done
  (cd "$from" && sha256sum -c SHA256SUMS >"$TMP/sums" 2>&1) || fail "$backup is broken: $(grep -v ': OK$' "$TMP/sums")"
  check_rdb "$from/redis.rdb"
  fill "$CORE" copy_tables
  fill "$REDIS" copy_redis
  say "$backup is restored"
}

case $1 in
  take) take ;;
  restore) restore ;;
esac
