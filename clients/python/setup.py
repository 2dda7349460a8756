"""Builds the package: what is generated is made here, and is in no repository."""

import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

sys.path.insert(0, str(Path(__file__).parent))
import build_step


class BuildWithGenerated(build_py):
    """Copies the sources, then adds stubs, methods and the synchronous half."""

    def run(self) -> None:
        """Runs the command."""
        super().run()
        build_step.generate(Path(self.build_lib) / "berth_client")


class SdistWithProtos(sdist):
    """Adds the protos, which are outside of this folder."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Makes the tree that is packed."""
        super().make_release_tree(base_dir, files)
        build_step.copy_protos(Path(base_dir) / "proto")


setup(
    cmdclass={"build_py": BuildWithGenerated, "sdist": SdistWithProtos},
    install_requires=build_step.requirements(),
)
