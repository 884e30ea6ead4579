#!/bin/sh
# Valkey, and the Sentinels beside one with replicas: how a pod learns its role, is judged, hands over, and takes up
# renewed certificates.
#
#   valkey.sh alone                       start a server without replicas (the container's command)
#   valkey.sh redis | sentinel            start one of several
#   valkey.sh ready redis | sentinel      is it ready?
#   valkey.sh leave                       before the pod ends: a primary hands over first
#
# HOSTS    the names of all pods, each with a Service of its own, so that a name and its address outlive the pod
# SELF     this pod's among them
# CLUSTER  what tells this cluster's Sentinels from those of others (the uid of its MqttCluster)
# CONFIG, SECRETS, DATA   the folders of the configuration, of the Secret's files, and of the volume
# TLS      the folder of the certificates; not set: nothing is encrypted
#
# No split brain:
# - Nobody is a primary but by the word of a majority of the Sentinels, who keep it on their volumes. Among different
#   words the newest counts (the highest epoch). A primary that comes back finds another one named, and is its replica.
# - Only where ALL Sentinels are there and none was ever told of a primary is it the very first start, and the first of
#   HOSTS is the primary. One Sentinel that lost its volume asks the others.
# - A named primary whose volume is empty though it had replicas doesn't start: they would copy its emptiness. The
#   Sentinels make another one the primary.
# - A primary that has just started takes no writes until the Sentinels see it up, none is about to replace it, and they
#   know of its replicas (they look every 10 s).
# - A replica that has just started can't be made the primary until it is in step with one: after a restart nobody knows
#   how far its data goes. So when all pods die at once, the last primary's volume is waited for; if it is lost for good,
#   somebody must choose (`valkey-cli config set replica-priority 100` in one pod).
# - A replica that no Sentinel knew of when its primary was succeeded is told by nobody else whom to follow: it looks
#   itself, now and then.
# - A primary that was cut off takes no writes once its replicas are gone (min-replicas-to-write), and FlockMQ takes
#   nothing for acknowledged that a majority of the pods doesn't have (WAIT).
# - A primary that leaves takes no writes any more, even where it finds no successor: a Sentinel whose answer was late may
#   be at it, and all of them take a primary whose writes are paused for dead, for their own greetings wait with these.
# What is left is Sentinel's own: a primary that stood still until another one was promoted, and goes on before its
# replicas have heard of it (a second or two), may have writes acknowledged by them that they then give up.
set -eu

NAME=flockmq
PORT=6379
SENTINEL_PORT=26379
# Longer than the 5 s for which Sentinel trusts what a replica said of its offset: whoever is chosen was asked after the
# primary's last word.
DOWN_AFTER_MS=6000
FAILOVER_TIMEOUT_MS=20000
LEAVE_S=25
# How long before that is over no Sentinel is asked any more, so that what it begins is done before the pod ends. Until
# there it is longer than the 10 s after which Sentinels look again whom they may choose.
SUCCESSION_S=10
# The pod's terminationGracePeriodSeconds: it doesn't outlive the pause.
PAUSE_S=90
# min-replicas-to-write of a primary that has just started: more than there ever are.
UNSETTLED=999
FOLLOW_EVERY_S=5
CERTIFICATES_EVERY_S=10
# Between the restarts of two Sentinels.
RESTART_S=30

password=$(cat "$SECRETS/password") # of valkey-cli's environment alone, and on no command line

all=0
for _ in $HOSTS; do all=$((all + 1)); done
majority=$((all / 2 + 1))
needed=$((all / 2)) # replicas that take part in a write

say() { echo "valkey.sh: $*" >&2; }
cli() {
  REDISCLI_AUTH=$password VALKEYCLI_AUTH=$password timeout 3 valkey-cli ${TLS:+--tls --cacert "$TLS/ca.crt"} "$@"
}
redis() { cli -h "$SELF" -p $PORT "$@"; }
sentinel() { host=$1; shift; cli -h "$host" -p $SENTINEL_PORT --user operator "$@" 2>/dev/null; }

# word HOST: "EPOCH PRIMARY REPLICAS FLAGS" by the Sentinel there; "none" when it was told of no primary; nothing: no
# answer
word() {
  sentinel "$1" sentinel master $NAME | {
    epoch= primary= replicas= flags= unknown=
    while read -r key; do
      case $key in "ERR No such master"*) unknown=yes ;; esac
      read -r value || break
      case $key in
        ip) primary=$value ;;
        config-epoch) epoch=$value ;;
        num-slaves) replicas=$value ;;
        flags) flags=$value ;;
      esac
    done
    if [ -n "$primary" ]; then echo "$epoch $primary $replicas $flags"; elif [ -n "$unknown" ]; then echo none; fi
  }
}

# ask: how many Sentinels answered, how many of them know a primary, what the newest word is; how many see the pod that
# it names as the primary, up, with nobody about to replace it; and how many of these know of replicas enough for writes
ask() {
  answered=0 knowing=0 content=0 informed=0 newest=-1 primary= replicas=0
  for each in $HOSTS; do
    said=$(word "$each")
    [ -n "$said" ] || continue
    answered=$((answered + 1))
    [ "$said" != none ] || continue
    knowing=$((knowing + 1))
    # shellcheck disable=SC2086
    set -- $said
    if [ "$1" -gt $newest ]; then newest=$1 primary=$2 replicas=0 content=0 informed=0; fi
    if [ "$1 $2" = "$newest $primary" ] && [ "$3" -gt $replicas ]; then replicas=$3; fi
    if [ "$1 $2 $4" = "$newest $primary master" ]; then
      content=$((content + 1))
      [ "$3" -lt $needed ] || informed=$((informed + 1))
    fi
  done
}

# watch_certificates COMMAND: run it when the kubelet has brought other ones, until it succeeds
watch_certificates() {
  [ -n "${TLS:-}" ] || return 0
  shown=$(certificates)
  while sleep $CERTIFICATES_EVERY_S; do
    there=$(certificates)
    [ "$there" = "$shown" ] || { "$1" && shown=$there; } || true
  done &
}

certificates() { cat "$TLS/tls.crt" "$TLS/tls.key" "$TLS/ca.crt" | sha1sum; }

# show_certificates: have the server read them again. What it still shows may be believed no longer: it isn't looked at.
show_certificates() {
  cli --insecure -p $PORT -e config set tls-cert-file "$TLS/tls.crt" tls-key-file "$TLS/tls.key" \
    tls-ca-cert-file "$TLS/ca.crt" >/dev/null || return 1
  say "shows the renewed certificate"
}

# restart_sentinel: it reads certificates only when it starts; one Sentinel after the other
restart_sentinel() {
  for each in $HOSTS; do
    [ "$each" != "$SELF" ] || break
    sleep $RESTART_S
  done
  say "restarting, to show the renewed certificate"
  kill $$
}

start_redis() {
  while ask; [ $knowing -lt $majority ]; do
    say "$knowing of $all Sentinels name a primary; $majority are needed"
    sleep 1
  done
  if [ "$primary" != "$SELF" ]; then
    say "a replica of $primary"
    accompany &
    exec valkey-server "$CONFIG/valkey.conf" --replica-announce-ip "$SELF" --replica-priority 0 \
      --replicaof "$primary" $PORT
  fi
  if [ "$replicas" -gt 0 ] && [ ! -e "$DATA/appendonlydir" ]; then
    say "named the primary of $replicas replicas, but the volume is empty: waiting for another one to be named"
    sleep 1
    start_redis
  fi
  say "the primary"
  accompany &
  exec valkey-server "$CONFIG/valkey.conf" --replica-announce-ip "$SELF" --min-replicas-to-write $UNSETTLED
}

# accompany: what runs beside the server for as long as it does
accompany() {
  settle
  while sleep $FOLLOW_EVERY_S; do follow; done
}

# settle: once the Sentinels see a primary and its replicas, or a replica is in step, let it be what it is. A failover
# that was begun by a Sentinel that doesn't answer has ended after its time.
settle() {
  alone_at=$(($(date +%s) + 2 * FAILOVER_TIMEOUT_MS / 1000))
  while sleep 0.5; do
    case $(field role) in
      master)
        ask
        [ "$primary" = "$SELF" ] || continue
        [ $informed -eq $all ] || { [ $informed -ge $majority ] && [ "$(date +%s)" -ge $alone_at ]; } || continue ;;
      slave) [ "$(field master_link_status)" = up ] || continue ;;
      *) continue ;;
    esac
    redis config set min-replicas-to-write $needed replica-priority 100 && return
  done
}

# follow: a replica of anybody but the primary that a majority sees up becomes its replica
follow() {
  [ "$(field role)" = slave ] || return 0
  ask
  followed=$(field master_host)
  if [ $content -ge $majority ] && [ "$primary" != "$SELF" ] && [ "$followed" != "$primary" ]; then
    say "a replica of $followed, but $primary is the primary: following it"
    redis replicaof "$primary" $PORT || true
  fi
}

start_sentinel() {
  mkdir -p "$DATA/sentinel"
  if [ ! -s "$DATA/sentinel/sentinel.conf" ]; then
    myid=$(printf %s "$CLUSTER $SELF" | sha1sum | cut -c1-40)
    cat >"$DATA/sentinel/new.conf" <<CONF
include $SECRETS/sentinel.conf
aclfile $SECRETS/sentinel.acl
dir $DATA/sentinel
sentinel myid $myid
sentinel resolve-hostnames yes
sentinel announce-hostnames yes
sentinel announce-ip $SELF
sentinel announce-port $SENTINEL_PORT
CONF
    mv "$DATA/sentinel/new.conf" "$DATA/sentinel/sentinel.conf"
  fi
  # Sentinel writes the password out, below the include: an old one there would win over the Secret's. It listens as
  # Redis does, but for the port.
  sed -i '/^\(sentinel sentinel-user\|sentinel sentinel-pass\|port\|tls-[a-z-]*\) /d' "$DATA/sentinel/sentinel.conf"
  sed -n "/^\(port\|tls-[a-z-]*\) /{s/ $PORT\$/ $SENTINEL_PORT/;p;}" "$CONFIG/valkey.conf" \
    >>"$DATA/sentinel/sentinel.conf"
  introduce &
  exec valkey-server "$DATA/sentinel/sentinel.conf" --sentinel
}

# introduce: tell this pod's Sentinel whom to watch, unless it knows. Where its answer is late the next round asks it what
# it knows.
introduce() {
  while :; do
    ask
    case $(word "$SELF") in
      '') ;;
      none)
        if [ $knowing -gt 0 ]; then
          sentinel "$SELF" sentinel monitor $NAME "$primary" $PORT $majority || true
        elif [ $answered -eq $all ]; then
          say "all $all Sentinels are new: ${HOSTS%% *} is the first primary"
          sentinel "$SELF" sentinel monitor $NAME "${HOSTS%% *}" $PORT $majority || true
        else
          say "$answered of $all Sentinels answer; to begin, all must"
        fi ;;
      *)
        printf %s "$password" | sentinel "$SELF" -x sentinel set $NAME quorum $majority parallel-syncs 1 \
          down-after-milliseconds $DOWN_AFTER_MS failover-timeout $FAILOVER_TIMEOUT_MS auth-user default auth-pass &&
          return ;;
    esac
    sleep 1
  done
}

field() { redis info replication | tr -d '\r' | sed -n "s/^$1://p"; }

ready() {
  if [ "$1" = sentinel ]; then
    said=$(word "$SELF")
    [ -n "$said" ] && [ "$said" != none ]
  else
    case $(field role) in
      master) [ "$(redis config get min-replicas-to-write | tail -n 1)" != $UNSETTLED ] ;;
      slave) [ "$(field master_link_status)" = up ] && [ "$(redis config get replica-priority | tail -n 1)" != 0 ] ;;
      *) false ;;
    esac
  fi
}

# caught_up: whether there are replicas, and each has all that the primary has
caught_up() {
  redis info replication | tr -d '\r' | {
    replicas=0 behind=0 offset=
    while IFS=: read -r key value; do
      case $key in
        master_repl_offset) offset=$value ;;
        slave[0-9]*) replicas=$((replicas + 1)) states="${states:-} $value" ;;
      esac
    done
    for state in ${states:-}; do
      case $state in *state=online,offset=$offset,*) ;; *) behind=$((behind + 1)) ;; esac
    done
    [ $replicas -gt 0 ] && [ $behind -eq 0 ]
  }
}

# leave: take no more writes, to the end (SIGTERM follows), wait until the replicas have all, have one of them made the
# primary
leave() {
  [ "$(field role)" = master ] || return 0
  deadline=$(($(date +%s) + LEAVE_S))
  redis client pause $((PAUSE_S * 1000)) write
  until caught_up; do
    [ "$(date +%s)" -lt $((deadline - LEAVE_S / 2)) ] || {
      say "the replicas don't have all that was written: leaving without a successor"
      return 0
    }
    sleep 0.2
  done
  until hand_over; do # again and again: whom they may choose the Sentinels see every 10 s
    may_ask || { say "leaving without a successor"; return 0; }
    sleep 1
    ask
    [ "$primary" = "$SELF" ] || return 0 # a Sentinel has chosen by itself: that one isn't to be succeeded
  done
  while ask; [ "$primary" = "$SELF" ]; do
    [ "$(date +%s)" -lt $deadline ] || return 0
    sleep 0.2
  done
}

may_ask() { [ "$(date +%s)" -lt $((deadline - SUCCESSION_S)) ]; }

# hand_over: have one Sentinel, and no second one, make a replica the primary
hand_over() {
  for each in $HOSTS; do
    [ "$each" != "$SELF" ] || continue
    may_ask || break
    [ "$(sentinel "$each" sentinel failover $NAME)" != OK ] || return 0
  done
  say "no Sentinel makes another one the primary yet"
  return 1
}

case $1 in
  alone)
    watch_certificates show_certificates
    exec valkey-server "$CONFIG/valkey.conf" ;;
  redis)
    watch_certificates show_certificates
    start_redis ;;
  sentinel)
    watch_certificates restart_sentinel
    start_sentinel ;;
  ready) ready "$2" ;;
  leave) leave ;;
esac
