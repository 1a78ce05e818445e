"""A site's secure sums on disk: the keys of an epoch, and what the site has said in each slot.

Rows are inserted, never replaced: a second upload or a second opinion in a slot is an error of the database. Secrets
are deleted as soon as the rules say that nobody needs them, in the transaction of the step that ends their use.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

from taciturn.federation.journal import SECRETS_OF_SUMS, Charge, Journal
from taciturn.secure_sum.epoch import (
    NEVER,
    AnnouncedEpoch,
    BegunEpoch,
    DealtEpoch,
    KeptEpoch,
    SlotSecrets,
)
from taciturn.secure_sum.epoch_messages import Announcement, Directory
from taciturn.secure_sum.shamir import element_bytes, read_elements
from taciturn.secure_sum.slot import NONE_BEGUN, SlotRecord, SlotState, SlotStep

PreparedEpoch: TypeAlias = AnnouncedEpoch | DealtEpoch | KeptEpoch
"""An epoch that has not begun."""


@dataclass(frozen=True)
class SumJournal:
    """The secure sums of one study in a site's journal. Every write happens in a transaction of the caller.

    Attributes
    ----------
    journal
        The site's open journal.
    experiment
        The study.
    """

    journal: Journal
    experiment: str

    def newest_epoch(self) -> int:
        """Return the newest epoch that this site announced, or NEVER."""
        (newest,) = self._one("select max(epoch) from sum_announcements where experiment = ?")
        return NEVER if newest is None else int(newest)

    def epochs(self) -> int:
        """Return how many epochs this site has announced."""
        (count,) = self._one("select count(*) from sum_announcements where experiment = ?")
        return int(count)

    def write_announced(self, state: AnnouncedEpoch) -> None:
        """Store new keys. An older epoch that has not begun can never begin, so its secrets are deleted."""
        epoch, begun = state.announcement.epoch, self._begun()
        self._strike_out("epoch != ?", NEVER if begun is None else begun)
        self._run(
            "insert into sum_announcements values (?, ?, ?, ?)", epoch, state.announcement.to_bytes(), state.box_key
        )
        for slot, secrets in enumerate(state.secrets):
            self._run("insert into sum_secrets values (?, ?, ?, ?)", epoch, slot, _to_blob([secrets]))

    def write_dealt(self, state: DealtEpoch) -> None:
        """Store the directory that this site shared its secrets under, and what it sent."""
        values = (state.directory.epoch, state.directory.to_bytes(), _to_blob(state.kept), state.deal)
        self._run("insert into sum_deals values (?, ?, ?, ?, ?)", *values)

    def write_kept(self, state: KeptEpoch) -> None:
        """Store this site's shares; the key of its boxes is not needed any more."""
        epoch, sites = state.directory.epoch, state.directory.sites
        for slot, shares in enumerate(state.shares):
            if shares is not None:
                blob = _to_blob([shares[site] for site in sites])
                self._run("insert into sum_shares values (?, ?, ?, ?)", epoch, slot, blob)
        self._run("update sum_announcements set box_key = null where experiment = ? and epoch = ?", epoch)
        self._run("update sum_deals set kept = null where experiment = ? and epoch = ?", epoch)

    def write_begun(self, state: BegunEpoch) -> None:
        """Store that an epoch has begun; all older ones have ended."""
        epoch = state.directory.epoch
        self._strike_out("epoch < ?", epoch)
        self._run("update sum_deals set deal = null where experiment = ? and epoch = ?", epoch)
        self._run("insert into sum_begun values (?, ?)", epoch)

    def write_upload(self, state: SlotState, step: SlotStep, round_number: int, charge: Charge) -> None:
        """Store the only upload of a slot with its ledger entries, and delete the secrets that it makes useless."""
        epoch, slot = state.keys.directory.epoch, step.slot
        self._run(
            "insert into sum_uploads values (?, ?, ?, ?, ?, ?, ?)",
            *(epoch, slot, round_number, step.record.context, json.dumps(charge.entries), step.record.upload),
        )
        where = "where experiment = ? and epoch = ? and slot"
        self._run(f"delete from sum_secrets {where} <= ?", epoch, slot)
        self._run(f"delete from sum_shares {where} < ?", epoch, slot)
        self._run(f"update sum_uploads set upload = null {where} < ?", epoch, slot)

    def write_opinion(self, state: SlotState, step: SlotStep) -> None:
        """Store the only set that this site agrees to in a slot."""
        values = (state.keys.directory.epoch, step.slot, step.record.context, json.dumps(step.record.alive))
        self._run("insert into sum_opinions values (?, ?, ?, ?, ?)", *values)

    def prepared(self) -> PreparedEpoch | None:
        """Return the newest epoch, if it has not begun."""
        epoch = self.newest_epoch()
        if epoch == NEVER or epoch == self._begun():
            return None
        query = "select announcement, box_key from sum_announcements where experiment = ? and epoch = ?"
        announcement, box_key = self._one(query, epoch)
        announced = AnnouncedEpoch(Announcement.from_bytes(announcement), box_key or b"", self._own_secrets(epoch))
        query = "select directory, kept, deal from sum_deals where experiment = ? and epoch = ?"
        row = self._one(query, epoch)
        if row is None:
            return announced
        directory = Directory.from_bytes(row[0])
        if row[1] is not None:
            return DealtEpoch(announced, directory, _from_blob(row[1]), row[2])
        return KeptEpoch(directory, announced.secrets, self._shares(directory))

    def state(self) -> SlotState | None:
        """Return the state of the epoch that has begun last, or None."""
        epoch = self._begun()
        if epoch is None:
            return None
        (blob,) = self._one("select directory from sum_deals where experiment = ? and epoch = ?", epoch)
        directory = Directory.from_bytes(blob)
        secrets = dict(self._secret_rows(epoch))
        own = tuple(secrets.get(slot) for slot in range(directory.slots))
        (newest,) = self._one("select max(slot) from sum_uploads where experiment = ? and epoch = ?", epoch)
        (charged,) = self._one("select count(*) from sum_uploads where experiment = ?")
        return SlotState(
            BegunEpoch(directory, own, self._shares(directory)),
            self._records(epoch),
            NONE_BEGUN if newest is None else int(newest),
            int(charged),
        )

    def _records(self, epoch: int) -> Mapping[int, SlotRecord]:
        """Return what was said in each slot; the upload of an ended slot is gone, and its record with it."""
        where = "where experiment = ? and epoch = ?"
        found: dict[int, SlotRecord] = {}
        for slot, context, upload in self._all(f"select slot, context, upload from sum_uploads {where}", epoch):
            found[slot] = SlotRecord(context, upload or b"")
        for slot, context, alive in self._all(f"select slot, context, alive from sum_opinions {where}", epoch):
            upload = found[slot].upload if slot in found else b""
            found[slot] = SlotRecord(context, upload, tuple(json.loads(alive)))
        return MappingProxyType(found)

    def _own_secrets(self, epoch: int) -> tuple[SlotSecrets, ...]:
        return tuple(secrets for _, secrets in self._secret_rows(epoch))

    def _secret_rows(self, epoch: int) -> list[tuple[int, SlotSecrets]]:
        query = "select slot, secrets from sum_secrets where experiment = ? and epoch = ? order by slot"
        return [(slot, _from_blob(blob)[0]) for slot, blob in self._all(query, epoch)]

    def _shares(self, directory: Directory) -> tuple[Mapping[int, SlotSecrets] | None, ...]:
        query = "select slot, shares from sum_shares where experiment = ? and epoch = ?"
        rows = dict(self._all(query, directory.epoch))
        return tuple(
            dict(zip(directory.sites, _from_blob(rows[slot]), strict=True)) if slot in rows else None
            for slot in range(directory.slots)
        )

    def _begun(self) -> int | None:
        (newest,) = self._one("select max(epoch) from sum_begun where experiment = ?")
        return None if newest is None else int(newest)

    def _strike_out(self, which: str, epoch: int) -> None:
        """Delete the secrets of some epochs."""
        where = f"where experiment = ? and {which}"
        for table in SECRETS_OF_SUMS:
            self._run(f"delete from {table} {where}", epoch)
        self._run(f"update sum_announcements set box_key = null {where}", epoch)
        self._run(f"update sum_deals set kept = null, deal = null {where}", epoch)
        self._run(f"update sum_uploads set upload = null {where}", epoch)

    def _run(self, query: str, *values: Any) -> Any:
        return self.journal.database.connection.execute(query, (self.experiment, *values))

    def _one(self, query: str, *values: Any) -> Any:
        return self._run(query, *values).fetchone()

    def _all(self, query: str, *values: Any) -> list[Any]:
        rows: list[Any] = self._run(query, *values).fetchall()
        return rows


def _to_blob(secrets: Iterable[SlotSecrets]) -> bytes:
    return b"".join(element_bytes(value) for one in secrets for value in (one.pair, one.own))


def _from_blob(blob: bytes) -> tuple[SlotSecrets, ...]:
    values = read_elements(blob)
    return tuple(SlotSecrets(*both) for both in zip(values[::2], values[1::2], strict=True))
