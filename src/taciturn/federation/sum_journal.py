"""A site's secure sums on disk: the keys of an epoch, and what the site has said in each slot.

Rows are inserted, never replaced: a second upload or a second opinion in a slot is an error of the database. Secrets
are deleted as soon as the rules say that nobody needs them, in the transaction of the step that ends their use.

Every step is counted, and the count is also stored in the user's state folder before the step's reply leaves. A journal
that was put back from a backup counts fewer steps, and is refused: it could hold a second opinion on a slot.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from taciturn.core.storage import read_count, state_folder, to_json, write_count
from taciturn.errors import CorruptFile, PrivacyViolation
from taciturn.federation.journal import Charge, Experiment, Journal, Slot
from taciturn.secure_sum.epoch import (
    NEVER,
    AnnouncedEpoch,
    BegunEpoch,
    DealtEpoch,
    KeptEpoch,
    SlotSecrets,
)
from taciturn.secure_sum.epoch_messages import Announcement, Directory
from taciturn.secure_sum.parameters import GRADIENT, MEASURES
from taciturn.secure_sum.shamir import element_bytes, read_elements
from taciturn.secure_sum.slot import NONE_BEGUN, SlotRecord, SlotState, SlotStep
from taciturn.secure_sum.slot_messages import SumQuestion

PreparedEpoch: TypeAlias = AnnouncedEpoch | DealtEpoch | KeptEpoch
"""An epoch that has not begun."""


@dataclass
class SumJournal:
    """The secure sums of one study in a site's journal. Every write happens in a transaction of the caller.

    Attributes
    ----------
    journal
        The site's open journal.
    study
        The journal's entry of the study.
    """

    journal: Journal
    study: Experiment
    _stored: int | None = None  # the count in the state folder, once this process has written it

    @property
    def steps_file(self) -> Path:
        """The file with the count of steps, in the user's state folder."""
        return state_folder() / "sums" / f"{self.study.reservation}.steps"

    def check_not_restored(self) -> None:
        """Raise if the journal lacks steps whose replies may have left; before the first step, begin to count.

        Raises
        ------
        CorruptFile
            If an old journal was restored, or the count in the state folder is lost.
        """
        stored, steps = read_count(self.steps_file), self._steps()
        if stored is None and steps == 0:
            write_count(self.steps_file, 0)
        elif stored is None or stored > steps:
            raise CorruptFile(
                f"the journal has {steps} steps of this study's secure sums and {self.steps_file} counts "
                f"{'none' if stored is None else stored}: an old journal was restored, or the state folder was lost"
            )

    def store_count(self) -> None:
        """Store the count of steps outside the journal, after a step's transaction and before its reply leaves."""
        steps = self._steps()
        if self._stored != steps:
            write_count(self.steps_file, steps)
            self._stored = steps

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
        epoch = state.announcement.epoch
        self.journal.delete_sums(self.study.id, keep=self._begun())
        self._count_step()
        self._run(
            "insert into sum_announcements values (?, ?, ?, ?)", epoch, state.announcement.to_bytes(), state.box_key
        )
        for slot, secrets in enumerate(state.secrets):
            self._run("insert into sum_secrets values (?, ?, ?, ?)", epoch, slot, _to_blob([secrets]))

    def write_dealt(self, state: DealtEpoch) -> None:
        """Store the directory that this site shared its secrets under, and what it sent."""
        self._count_step()
        values = (state.directory.epoch, state.directory.to_bytes(), _to_blob(state.kept), state.deal)
        self._run("insert into sum_deals values (?, ?, ?, ?, ?)", *values)

    def write_kept(self, state: KeptEpoch) -> None:
        """Store this site's shares; the key of its boxes is not needed any more."""
        epoch, sites = state.directory.epoch, state.directory.sites
        self._count_step()
        for slot, shares in enumerate(state.shares):
            if shares is not None:
                blob = _to_blob([shares[site] for site in sites])
                self._run("insert into sum_shares values (?, ?, ?, ?)", epoch, slot, blob)
        self._run("update sum_announcements set box_key = null where experiment = ? and epoch = ?", epoch)
        self._run("update sum_deals set kept = null where experiment = ? and epoch = ?", epoch)

    def write_begun(self, state: BegunEpoch) -> None:
        """Store that an epoch has begun; all older ones have ended."""
        epoch = state.directory.epoch
        self.journal.delete_sums(self.study.id, before=epoch)
        self._count_step()
        self._run("update sum_deals set deal = null where experiment = ? and epoch = ?", epoch)
        self._run("delete from sum_begun where experiment = ? and epoch < ?", epoch)
        self._run("insert into sum_begun values (?, ?)", epoch)

    def write_upload(self, state: SlotState, step: SlotStep, question: SumQuestion, charge: Charge) -> None:
        """Store the only upload of a slot with its ledger entries, and delete what it makes useless."""
        epoch, slot = state.keys.directory.epoch, step.slot
        self._count_step()
        self._run(
            "insert into sum_uploads values (?, ?, ?, ?, ?, ?, ?, ?)",
            epoch,
            slot,
            question.round,
            step.record.context,
            to_json(charge.entries),
            step.record.upload,
            question.subject,
        )
        where = "where experiment = ? and epoch = ? and slot"
        self._run(f"delete from sum_secrets {where} <= ?", epoch, slot)
        for table in ("sum_shares", "sum_opinions"):
            self._run(f"delete from {table} {where} < ?", epoch, slot)
        self._run(f"update sum_uploads set upload = null {where} < ? and upload is not null", epoch, slot)

    def write_opinion(self, state: SlotState, step: SlotStep) -> None:
        """Store the only set that this site agrees to in a slot.

        Raises
        ------
        PrivacyViolation
            If a newer slot or epoch is in the journal than in the state: another process has answered.
        """
        epoch, slot = state.keys.directory.epoch, step.slot
        self._check_live(epoch, slot)
        self._count_step()
        values = (epoch, slot, step.record.context, json.dumps(step.record.alive))
        self._run("insert into sum_opinions values (?, ?, ?, ?, ?)", *values)

    def _check_live(self, epoch: int, slot: int) -> None:
        if epoch != self._begun() or slot < self._newest_slot(epoch):
            raise PrivacyViolation(
                f"slot {Slot(epoch, slot)} has ended in the journal, and would be answered once more"
            )

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
        query = "select subject, count(*) from sum_uploads where experiment = ? group by subject"
        charged = dict(self._all(query))
        return SlotState(
            BegunEpoch(directory, own, self._shares(directory)),
            self._records(epoch),
            self._newest_slot(epoch),
            (charged.get(GRADIENT, 0), charged.get(MEASURES, 0)),
        )

    def _newest_slot(self, epoch: int) -> int:
        (newest,) = self._one("select max(slot) from sum_uploads where experiment = ? and epoch = ?", epoch)
        return NONE_BEGUN if newest is None else int(newest)

    def _records(self, epoch: int) -> Mapping[int, SlotRecord]:
        """Return what was said in each slot that has not ended."""
        where = "where experiment = ? and epoch = ?"
        found: dict[int, SlotRecord] = {}
        query = f"select slot, context, upload from sum_uploads {where} and upload is not null"
        for slot, context, upload in self._all(query, epoch):
            found[slot] = SlotRecord(context, upload)
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

    def _steps(self) -> int:
        row = self._one("select steps from sum_steps where experiment = ?")
        return int(row[0]) if row else 0

    def _count_step(self) -> None:
        query = "insert into sum_steps values (?, 1) on conflict (experiment) do update set steps = steps + 1"
        self._run(query)

    def _run(self, query: str, *values: Any) -> Any:
        return self.journal.database.connection.execute(query, (self.study.id, *values))

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
