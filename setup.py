"""All of the metadata is in setup.cfg."""

import compileall
import sys

from setuptools import setup

setup()

if {"develop", "editable_wheel"}.intersection(sys.argv):
    # pip compiles what it installs, but not what it only links to. Where Python may not write bytecode itself
    # (PYTHONDONTWRITEBYTECODE, a read-only folder), every import of an editable install would compile all modules anew: 0.2 s.
    compileall.compile_dir("agentcore", quiet=2)
