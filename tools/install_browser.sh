#!/bin/sh
# The page's tests drive a real Chromium, the tests of privacy use strace; Debian and Ubuntu carry both. Elsewhere those tests
# skip themselves.
command -v chromium >/dev/null && command -v chromedriver >/dev/null && command -v strace >/dev/null && exit 0
command -v apt-get >/dev/null || exit 0
sudo=""; [ "$(id -u)" = 0 ] || sudo="sudo -n"
$sudo apt-get update -qq && $sudo apt-get install -y -qq chromium chromium-driver strace >/dev/null ||
  echo "chromium or strace could not be installed: their tests will be skipped" >&2
