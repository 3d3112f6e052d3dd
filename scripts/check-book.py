#!/usr/bin/env python3
"""Checks the built book: every link and picture of every page leads to a file of the book, and every anchor exists.

    scripts/check-book.py FOLDER

Links to other sites are not followed.
"""

import html.parser
import pathlib
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.links, self.anchors = [], set()

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.anchors.update(value for key, value in attributes if key in ("id", "name") and value)
        for key in ("href", "src"):
            if values.get(key) and tag != "base":
                self.links.append(values[key])


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    pages = {}
    for path in folder.rglob("*.html"):
        page = Page()
        page.feed(path.read_text(encoding="utf-8"))
        pages[path] = page
    broken, count = [], 0
    for path, page in pages.items():
        # It has the address of the site as its base, and print.html repeats all pages.
        if path.name in ("404.html", "print.html", "toc.html"):
            continue
        for link in page.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            count += 1
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            anchor = urllib.parse.unquote(parts.fragment)
            if not target.exists():
                broken.append(f"{path.relative_to(folder)}: {link} leads to nothing")
            elif anchor and target in pages and anchor not in pages[target].anchors:
                broken.append(f"{path.relative_to(folder)}: {link}: the page has no such anchor")
    for line in sorted(set(broken)):
        print(line, file=sys.stderr)
    print(f"book: {len(pages)} pages, {count} links, {len(set(broken))} broken", file=sys.stderr)
    sys.exit(bool(broken) or len(pages) < 20)


main()
