#!/bin/sh
# Prints the badges for a copy of this repository on GitHub, in Markdown, and writes the address of the copy into the
# first cell of notebook 08, which installs packviz on Colab: sh tools/badges.sh owner/name
set -eu

repository=${1-}
if ! printf '%s\n' "$repository" | grep -Eq '^[A-Za-z0-9_-]+/[A-Za-z0-9._-]+$'; then
    echo "REPO is '$repository'; give the repository: make badge REPO=owner/name" >&2
    exit 2
fi
page=notebooks/08_benchmark.ipynb
for file in notebooks/source/08_benchmark.py "$page" notebooks/solutions/08_benchmark.ipynb; do
    sed "s|https://github.com/[^\"\\]*\\(.*  # your copy\\)|https://github.com/$repository\\1|" "$file" >"$file.new"
    mv "$file.new" "$file"
done

badge() { echo "[![$1]($2)]($3)"; }
start=urlpath=lab/tree/notebooks/00_start_here.ipynb
badge "Open in Binder" https://mybinder.org/badge_logo.svg "https://mybinder.org/v2/gh/$repository/HEAD?$start"
badge "Open the benchmark in Colab" https://colab.research.google.com/assets/colab-badge.svg \
    "https://colab.research.google.com/github/$repository/blob/main/$page"
badge "Read the web site" https://img.shields.io/badge/read-the_web_site-blue \
    "https://${repository%/*}.github.io/${repository#*/}/"
