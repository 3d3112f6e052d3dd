#!/usr/bin/env python3
"""Writes the software bill of materials of the program, as CycloneDX 1.5 JSON, from `cargo metadata` and Cargo.lock.

    scripts/sbom.py TARGET > driftless.cdx.json

It lists the crates that are compiled into the program for this target, with licences, checksums and dependencies.
"""

import json
import subprocess
import sys
import tomllib


def metadata(target):
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", target]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def main():
    found = metadata(sys.argv[1])
    with open("Cargo.lock", "rb") as file:
        locked = {(it["name"], it["version"]): it.get("checksum") for it in tomllib.load(file)["package"]}
    packages = {it["id"]: it for it in found["packages"]}
    nodes = {it["id"]: it for it in found["resolve"]["nodes"]}
    root = found["resolve"]["root"]

    def needed(node):
        """The packages that are linked into this one; build scripts and tests are not."""
        kinds = lambda dependency: [kind["kind"] for kind in dependency["dep_kinds"]]
        return sorted(it["pkg"] for it in nodes[node]["deps"] if None in kinds(it))

    seen, waiting = {root}, [root]
    while waiting:
        for node in needed(waiting.pop()):
            if node not in seen:
                seen.add(node)
                waiting.append(node)

    def reference(node):
        package = packages[node]
        return f"pkg:cargo/{package['name']}@{package['version']}"

    def component(node):
        package = packages[node]
        entry = {
            "type": "library",
            "bom-ref": reference(node),
            "name": package["name"],
            "version": package["version"],
            "purl": reference(node),
            "scope": "required",
        }
        if package.get("license"):
            # Older crates write `MIT/Apache-2.0`.
            entry["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
        checksum = locked.get((package["name"], package["version"]))
        if checksum:
            entry["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        if package.get("repository"):
            entry["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
        return entry

    program = {**component(root), "type": "application"}
    others = sorted(seen - {root}, key=reference)
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": program},
        "components": [component(node) for node in others],
        "dependencies": [
            {"ref": reference(node), "dependsOn": sorted({reference(it) for it in needed(node)})}
            for node in [root, *others]
        ],
    }
    json.dump(document, sys.stdout, indent=1)
    print()


main()
