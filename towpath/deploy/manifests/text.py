"""Resources as YAML, which is the same for the same resources."""

from __future__ import annotations

from collections.abc import Iterable

import yaml

from towpath.deploy.manifests.options import Resource

_WIDE = 1000  # columns; no line is folded


class _Dumper(yaml.SafeDumper):
    """Texts of several lines are blocks; nothing is an alias."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def as_yaml(resources: Iterable[Resource]) -> str:
    return yaml.dump_all(
        resources, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDE, explicit_start=True
    )
