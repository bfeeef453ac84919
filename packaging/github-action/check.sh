#!/bin/sh
# Lints, tests and proves policies for the action: findings on their lines, a summary, SARIF files, one exit code.
#
#   SLUICE_POLICIES  files or folders, one a line       SLUICE_TESTS   the same for unit tests; may be empty
#   SLUICE_BASE      revision to compare with; may be empty
#   SLUICE_FAIL_ON   note, warning, error               SLUICE_ACCEPT  accepted gains; may be empty
#   SLUICE           the binary                         SLUICE_OUT     folder for the SARIF files
#
# Exit code: 0 passed, 1 widened, an assertion or a test failed, or lint found enough; 2 bad input; 3 unknown.
set -eu

sluice=${SLUICE:-sluice}
out=${SLUICE_OUT:-${RUNNER_TEMP:-/tmp}/sluice}
summary=${GITHUB_STEP_SUMMARY:-/dev/null}
outputs=${GITHUB_OUTPUT:-/dev/null}
worst=0

# The worst: bad input, then no answer, then a finding.
note() {
  case $1 in
    0) ;;
    2) worst=2 ;;
    3) [ "$worst" = 2 ] || worst=3 ;;
    *) [ "$worst" != 0 ] || worst=1 ;;
  esac
}

# run COMMAND…: its exit code in $code.
run() {
  code=0
  "$@" || code=$?
}

# `set -- LIST` of the lines of a variable; a name may hold spaces, and none is an option.
lines() {
  printf '%s\n' "$1" | while IFS= read -r line; do
    case $line in
      '' | *[!\ ]*) ;;
      *) line='' ;;
    esac
    case $line in
      '') ;;
      -*) printf './%s\n' "$line" ;;
      *) printf '%s\n' "$line" ;;
    esac
  done
}

mkdir -p "$out"
rm -f "$out/lint.sarif" "$out/prove.sarif"
policies=$(lines "${SLUICE_POLICIES:?name the policies}")
tests=$(lines "${SLUICE_TESTS:-}")
newline='
'
IFS=$newline
set -f

# shellcheck disable=SC2086 # one word a line, and no globs
set -- $policies
run "$sluice" lint --format sarif --fail-on "${SLUICE_FAIL_ON:-error}" "$@" >"$out/lint.sarif"
note "$code"
run "$sluice" lint --format github --fail-on "${SLUICE_FAIL_ON:-error}" "$@"
run "$sluice" lint --format markdown --fail-on "${SLUICE_FAIL_ON:-error}" "$@" >>"$summary"

if [ -n "$tests" ]; then
  # shellcheck disable=SC2086
  run "$sluice" test $tests
  note "$code"
fi

# Without a base the head is compared with itself, so that its assertions are checked. (`prove A B` would compare A with B.)
base=${SLUICE_BASE:-HEAD}
case $base in
  -*)
    echo "sluice: the base is a revision, not an option: $base" >&2
    exit 2
    ;;
esac
# A shallow checkout has the head alone.
if ! git cat-file -e "$base^{commit}" 2>/dev/null; then
  git fetch --quiet --no-tags --depth=1 origin "$base" || {
    echo "sluice: the base $base is not in this checkout; set fetch-depth: 0 on actions/checkout" >&2
    exit 2
  }
fi
set -- --base-git "$base" "$@"
[ -z "${SLUICE_ACCEPT:-}" ] || set -- --accept "$SLUICE_ACCEPT" "$@"
run "$sluice" prove --format sarif "$@" >"$out/prove.sarif"
note "$code"
case $code in
  0) verdict=equal-or-narrowed ;;
  1) verdict=widened ;;
  3) verdict=unknown ;;
  *) verdict=bad-input ;;
esac
run "$sluice" prove --format github "$@"
run "$sluice" prove --format markdown "$@" >>"$summary"

{
  echo "verdict=$verdict"
  echo "sarif=$out"
} >>"$outputs"
exit "$worst"
