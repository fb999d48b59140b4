#!/usr/bin/env bash
# Build the compose project, start it next to any other, send a request, restart it, stop it.
# Needs Docker with Compose v2.
set -euo pipefail
cd "$(dirname "$0")/.."

export COMPOSE_PROJECT_NAME=hardmax-test IMAGE=hardmax:test PUBLISH=127.0.0.1:0
trap 'docker compose down --volumes --timeout 5' EXIT

state() { docker inspect --format "{{.State.$1}}" "$(docker compose ps --all --quiet hardmax)"; }
classify() { docker compose exec -T hardmax hardmax classify "A superb film." --server http://127.0.0.1:8000; }

docker compose up --build --detach --wait
classify

# A service that ends is started again.
started=$(state StartedAt)
docker compose exec -T hardmax python -c "import os, signal; os.kill(1, signal.SIGTERM)" || true
for _ in $(seq 240); do
    [ "$(state StartedAt)" != "$started" ] && [ "$(state Health.Status)" = healthy ] && break
    sleep 0.5
done
[ "$(state StartedAt)" != "$started" ]
classify

# It stops on request before it is killed.
docker compose stop hardmax
[ "$(state ExitCode)" = 0 ]
echo "compose-test: passed"
