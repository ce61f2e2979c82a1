"""jetbridge conductor: as many processes as wanted share the work."""

from __future__ import annotations

from jetbridge.service.separate import SeparateProcess


class ConductorProcess(SeparateProcess):
    """Ends what dead processes left, never what a living one works on: that has an owner whose row has signs of life."""

    role = "conductor"

    def _start(self) -> str:
        self._open()
        self._register(self.name, ("nova-conductor", "conductor"))
        conducting = self._conducting()
        conducting.reconcile()
        self._look_after(conducting)
        self._live()
        self.bus.serve("conductor", conducting.handlers())
        return self.name
