#!/bin/sh
# The page's tests drive a real Chromium; Debian and Ubuntu carry one. Elsewhere those tests skip themselves.
command -v chromium >/dev/null && command -v chromedriver >/dev/null && exit 0
command -v apt-get >/dev/null || exit 0
sudo=""; [ "$(id -u)" = 0 ] || sudo="sudo -n"
$sudo apt-get update -qq && $sudo apt-get install -y -qq chromium chromium-driver >/dev/null ||
  echo "chromium could not be installed: the browser tests will be skipped" >&2
