"""Gathers what the site is made of: the pages in the repository, and the files and folders that they link to.

usage: site_pages.py ROOT FOLDER
"""

import pathlib
import re
import shutil
import sys

LINK = re.compile(r"\]\(([^)\s]+)\)")
TOP = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "LICENSE"]


def listing(folder):
    """A page for a folder, as the site has no other view of one."""
    files = sorted(file.relative_to(folder) for file in folder.rglob("*") if file.is_file())
    return f"# {folder.name}\n\n" + "".join(f"- [{file}]({file})\n" for file in files)


def main():
    root, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(root / "docs", out / "docs")
    wanted = [root / name for name in TOP]
    for page in [*wanted, *sorted((root / "docs").rglob("*.md"))]:
        if page.suffix != ".md":
            continue
        for link in LINK.findall(page.read_text()):
            target = (page.parent / link.split("#")[0]).resolve()
            if link.startswith(("http:", "https:", "#", "mailto:")) or not target.is_relative_to(root):
                continue
            if target.exists() and target != root and not target.is_relative_to(root / "docs"):
                wanted.append(target)
    for path in wanted:
        place = out / path.relative_to(root)
        if path.is_dir():
            if not place.exists():
                shutil.copytree(path, place, ignore=shutil.ignore_patterns("__pycache__"))
            if not (place / "README.md").exists():
                (place / "README.md").write_text(listing(place))
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)
    # A link to a folder is one to its page.
    for page in out.rglob("*.md"):
        page.write_text(LINK.sub(lambda found: to_page(page, found), page.read_text()))


def to_page(page, found):
    path, mark, anchor = found[1].partition("#")
    if path and not path.startswith(("http:", "https:")) and (page.parent / path).is_dir():
        return f"]({path.rstrip('/')}/README.md{mark}{anchor})"
    return found[0]


main()
