"""Cluster files, policy files, contract files, node events: what they say, and what is one clear sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirab.logs.budgetfile import EXEMPTION_KEYS, EXEMPTION_NEEDS
from mirab.logs.clusterfile import ClusterFile, apply_settings, read_cluster_file, read_policy
from mirab.logs.contracts import ContractRules, read_contract
from mirab.logs.errors import LogError
from mirab.logs.nodeevents import read_node_events
from mirab.model.policy import POLICIES, Policy
from mirab.model.units import DAY, WHOLE
from mirab.model.workloads import NodeTrouble
from tests.logs.helpers import FIXTURES, H, M, S, read, sacct, written


@pytest.fixture(scope="module")
def file() -> ClusterFile:
    return read_cluster_file(FIXTURES / "cluster.yaml")


def test_pools(file: ClusterFile) -> None:
    assert file.cluster is not None
    big, old = file.cluster.pools
    assert (len(big.nodes), big.nodes[0], big.nodes[-1]) == (16, "n000", "n015")
    assert (big.gpus_per_node, big.gpu_type, big.cpus_per_node, big.memory_mib_per_node) == (8, "h100", 96, 1 << 20)
    assert big.domains == tuple(0xF << begin for begin in (0, 4, 8, 12))
    assert (old.nodes, old.weight, old.domains) == (("o1", "o2", "o3", "o4"), 250, ())
    assert (file.cluster.name, file.cluster.unit, file.cluster.slots) == ("pair", "gpu", 144)


def test_budgets_with_their_owner_review_hypothesis_and_choices(file: ClusterFile) -> None:
    assert file.budgets is not None
    shares = {path: share for path, _, share in file.budgets.walk()}
    assert shares == {
        "north": 6 * WHOLE // 10, "north/vision": WHOLE * 375 // 1000, "north/speech": WHOLE * 225 // 1000,
        "south": 4 * WHOLE // 10,
    }  # fmt: skip
    north, south = file.budgets.roots
    assert (north.owner, north.review, north.hypothesis) == ("Ada", "2027-01-31", "sees more: with fewer labels")
    assert (north.children[0].save_for_gangs, north.children[1].equal_users) == (True, False)
    assert (south.save_for_gangs, south.equal_users) == (False, True)


def test_policy_reservations_exceptions_and_changes(file: ClusterFile) -> None:
    assert file.policy == Policy(name="ours", window=3 * DAY, margin=50)
    (held,) = file.reservations(None)
    assert (held.id, held.begin, held.end, held.nodes * held.gpus_per_node) == ("paper", 2 * DAY, 3 * DAY, 32)
    assert (held.owner, held.approver, held.reason) == ("Ada", "Ben", "deadline")
    (exempt,) = file.exemptions(None, shift=DAY)
    assert (exempt.id, exempt.kind, exempt.cap, exempt.begin, exempt.end) == (
        "x1",
        "longer-minimum",
        24 * H,
        0,
        7 * DAY,
    )
    (change,) = file.budget_changes(None)
    assert (change.at, change.author, [budget.share for budget in change.budgets.roots]) == (
        10 * DAY,
        "Ben",
        [WHOLE // 2, WHOLE // 2],
    )


def test_dates_need_a_calendar(tmp_path: Path) -> None:
    text = "reservations: [{account: a, nodes: 1, gpus_per_node: 8, from: 2024-03-02, until: 2024-03-02T12:00:00,"
    path = written(tmp_path, text + " owner: o, approver: p, reason: r}]\n", "c.yaml")
    (held,) = read_cluster_file(path).reservations(1709251200_000)
    assert (held.begin, held.end) == (DAY, DAY + 12 * H)
    with pytest.raises(LogError, match=r"c.yaml:1: from: the log has no calendar: write a duration"):
        read_cluster_file(path).reservations(None)


POOL = "cluster: {pools: {p: {nodes: n1, gpus_per_node: 8%s}}}\n"
PEOPLE = "owner: o, approver: p, reason: r"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("clusters: {}\n", r":1: the file has no key 'clusters': did you mean cluster\?"),
        ("cluster:\n  name: x\n  pols: {}\n", r":3: cluster has no key 'pols': did you mean pools\?"),
        (
            "cluster:\n  pools:\n    p:\n      gpu_per_node: 8\n",
            r":4: pool p has no key 'gpu_per_node': did you mean gpus_per_node\?",
        ),
        ("cluster: {name: x}\n", r":1: cluster has no 'pools': add it"),
        ("cluster: {pools: {}}\n", r":1: pools is empty"),
        ("cluster: {pools: {p: {nodes: n1}}}\n", r":1: pool p has neither gpus_per_node nor cpus_per_node"),
        (
            "cluster: {pools: {p: {nodes: 'n[3-1]', gpus_per_node: 8}}}\n",
            r":1: nodes: '3-1' is not a usable range: write n",
        ),
        ("cluster: {pools: {p: {nodes: 'a,a', gpus_per_node: 8}}}\n", r":1: node a stands twice in pool p"),
        (
            POOL % ", memory_per_node: 512",
            r":1: memory_per_node: '512' is not an amount of memory: write it with a unit",
        ),
        (POOL % ", weight: 0", r":1: weight: a weight of 0 would make its GPUs free"),
        (POOL % ", weight: 1e400", r":1: weight: '1e400' is not a weight"),
        (POOL % ", gpus_per_node: 4", r":1: the key 'gpus_per_node' stands twice: keep one"),
        (POOL % ", topology: {rack: 0}", r":1: rack has 0 nodes"),
        (POOL % ", topology: {rack: 4, row: 8}", r":1: topology names several levels or none"),
        ("cluster: {unit: tpu, pools: {p: {nodes: n1, gpus_per_node: 8}}}\n", r":1: unit: 'tpu' is not a unit"),
        ("budgets:\n  a: {share: 40}\n", r":2: share of a: '40' is not a share: write a percentage such as 12.5%"),
        ("budgets:\n  a: {}\n", r":2: account a has no 'share': add it"),
        ("budgets:\n  a:\n", r":2: account a holds nothing"),
        ("budgets:\n  a: {share: 1%, review: soon}\n", r":2: review: 'soon' is not a day: write one such as 2027"),
        ("budgets:\n  a: {share: 1%, closed: 2027-13-45}\n", r":2: closed: '2027-13-45' is not a day"),
        ("budgets:\n  '*': {share: 1%}\n", r":2: '\*' cannot be an account: .*: choose another name"),
        ("budgets:\n  a: {share: 1%, children: {' b': {share: 1%}}}\n", r":2: 'a/ b' cannot be an account"),
        ("cluster: {pools: {'p:q': {nodes: 2, gpus_per_node: 8}}}\n", r":1: the pool name 'p:q' holds a ':'"),
        ("cluster: {pools: {p: {nodes: -2, gpus_per_node: 8}}}\n", r":1: nodes: '-2' is not a whole number"),
        ("cluster: {pools: {p: {nodes: 1.5, gpus_per_node: 8}}}\n", r":1: nodes: '1.5' is not a whole number"),
        (
            "budgets:\n  a: {share: 60%}\n  b: {share: 50%}\n",
            r":1: the shares under budgets sum to 110%, more than 100%: a 60%, b 50%",
        ),
        (
            "budgets:\n  a:\n    share: 60%\n    children:\n      x: {share: 80%}\n      y: {share: 30%}\n",
            r":4: the shares under a sum to 110%, more than 100%: x 80%, y 30%",
        ),
        ("budgets:\n  a/b: {share: 60%}\n", r":2: the account name 'a/b' holds a '/': nest it under children"),
        (
            "budgets:\n  a: {share: 60%, saves_for_gangs: yes}\n",
            r":2: account a has no key .*: did you mean save_for_gangs\?",
        ),
        ("budgets:\n  a: {share: 6%}\n  a: {share: 7%}\n", r":3: the key 'a' stands twice: keep one"),
        ("policy: {window: 7}\n", r":1: window: window cannot be '7': write a duration above 0"),
        ("policy:\n  windows: 7d\n", r":2: policy has no key 'windows': did you mean window\?"),
        ("policy: {margin: 10}\n", r":1: margin: margin cannot be '10': write a percentage from 0% to 1000%"),
        ("policy: {min_runtime_cap: 1:00:00}\n", r"min_runtime_cap cannot be '1:00:00': write a duration"),
        ("policy: fivo\n", r":1: policy: no stock policy 'fivo': did you mean fifo\?"),
        (
            f"exceptions:\n- {{kind: guaranteed, account: a, {PEOPLE}, begin: 1d}}\n",
            r":2: the exception has no 'end': add it",
        ),
        (
            f"exceptions:\n- {{kind: guaranteed, account: a, {PEOPLE}, begin: 1, end: 2d}}\n",
            r":2: begin: '1' is neither a date nor",
        ),
        (
            f"exceptions:\n- {{kind: longer-minimum, account: a, {PEOPLE}, begin: 1d, end: 2d}}\n",
            r":2: .* has no 'cap': add it",
        ),
        (
            f"exceptions:\n- {{kind: longer, account: a, {PEOPLE}, begin: 1d, end: 2d}}\n",
            r":2: kind: no kind 'longer': did you mean longer-minimum\?",
        ),
        (
            "budgets: {ab: {share: 1%}}\n"
            f"exceptions:\n- {{kind: guaranteed, account: abc, {PEOPLE}, begin: 1d, end: 2d}}\n",
            r":3: there is no account 'abc' in the budgets: did you mean ab\?",
        ),
        (
            "budgets: {ab: {share: 1%}}\n"
            f"exceptions:\n- {{kind: guaranteed, account: ab, donor: cd, {PEOPLE}, begin: 1d, end: 2d}}\n",
            r":3: there is no account 'cd' in the budgets",
        ),
        (
            f"reservations:\n- {{account: a, nodes: 0, gpus_per_node: 8, from: 1d, until: 2d, {PEOPLE}}}\n",
            r":2: nodes: 0 is too few",
        ),
        (
            "reservations:\n- {account: a, nodes: 1, gpus_per_node: 8, from: 1d, until: 2d, owner: o, reason: r}\n",
            r":2: the reservation has no 'approver': add it",
        ),
        (
            POOL % ""
            + f"reservations:\n- {{account: a, nodes: 1, gpus_per_node: 8, pool: q, from: 1d, until: 2d, {PEOPLE}}}\n",
            r":3: there is no pool 'q': did you mean p\?",
        ),
        (
            POOL % ""
            + "exceptions:\n- {kind: drain-pause, account: a, node: p-01, "
            + f"{PEOPLE}, begin: 1d, end: 2d}}\n",
            r":3: there is no node 'p-01' in the cluster: did you mean n1\?",
        ),
        (
            f"reservations:\n- &r {{account: a, nodes: 1, gpus_per_node: 8, from: 1d, until: 2d, {PEOPLE}}}\n- *r\n",
            r": repeats a part by an alias",
        ),
        ("a: [1\nb: 2\n", r": is not YAML"),
        ("a: b\n---\nc: d\n", r": is not YAML"),
        ("- a\n", r":1: the file holds a list: write keys and values below it"),
        ("", r": says nothing: write a cluster: section"),
    ],
)
def test_a_cluster_file_that_is_wrong_is_one_sentence_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text, "c.yaml")
    with pytest.raises(LogError, match=message) as raised:
        read_cluster_file(path)
    assert str(raised.value).startswith(str(path))
    assert "\n" not in str(raised.value)


def test_an_end_before_the_begin_is_one_sentence(tmp_path: Path) -> None:
    text = f"exceptions:\n- {{kind: guaranteed, account: a, {PEOPLE}, begin: 2d, end: 1d}}\n"
    with pytest.raises(LogError, match=r"c.yaml:2: exception x1 ends before it begins: swap begin and end"):
        read_cluster_file(written(tmp_path, text, "c.yaml")).exemptions(None)


@pytest.mark.parametrize("key", EXEMPTION_NEEDS)
def test_every_exception_needs_all_that_makes_it_one(tmp_path: Path, key: str) -> None:
    assert set(EXEMPTION_NEEDS) < set(EXEMPTION_KEYS)
    whole = {
        "kind": "guaranteed",
        "account": "a",
        "owner": "o",
        "approver": "p",
        "reason": "r",
        "begin": "1d",
        "end": "2d",
    }
    rest = ", ".join(f"{name}: {value}" for name, value in whole.items() if name != key)
    with pytest.raises(LogError, match=f"the exception has no '{key}': add it"):
        read_cluster_file(written(tmp_path, f"exceptions: [{{{rest}}}]", "c.yaml"))


def test_no_scalar_is_interpreted_by_yaml(tmp_path: Path) -> None:
    """`no` is a team of Norway, `1e3` and `0x10` are nodes, not numbers."""
    text = "cluster: {name: 1:00:00, pools: {on: {nodes: '0x10,1e3', gpus_per_node: 8}}}\nbudgets: {no: {share: 5%}}\n"
    file = read_cluster_file(written(tmp_path, text, "c.yaml"))
    assert file.cluster is not None
    assert file.budgets is not None
    assert (file.cluster.name, file.cluster.pools[0].name, file.cluster.pools[0].nodes) == (
        "1:00:00",
        "on",
        ("0x10", "1e3"),
    )
    assert file.budgets.leaves() == ["no"]


def test_listed_domains_and_counted_nodes(tmp_path: Path) -> None:
    racks = 'topology: {rack: ["p-[000-002]", p-003]}'
    text = f"cluster:\n  pools:\n    p:\n      nodes: 4\n      cpus_per_node: 64\n      {racks}\n"
    file = read_cluster_file(written(tmp_path, text, "c.yaml"))
    assert file.cluster is not None
    (pool,) = file.cluster.pools
    assert (pool.nodes, pool.domains, file.cluster.unit) == (
        ("p-000", "p-001", "p-002", "p-003"),
        (0b0111, 0b1000),
        "cpu",
    )
    for wrong, message in (('["p-[000-002]"]', "node p-003 is in no rack"), ('["p-[000-003]", p-001]', "stands twice")):
        with pytest.raises(LogError, match=message):
            read_cluster_file(written(tmp_path, text.replace('["p-[000-002]", p-003]', wrong), "c.yaml"))


def test_policy_files(tmp_path: Path) -> None:
    bare = read_policy(written(tmp_path, "window: 14d\nhalf_life: 3d\nholds_max: 2\nheadroom: 2.5%\n", "p.yaml"))
    assert bare == Policy(window=14 * DAY, half_life=3 * DAY, holds_max=2, headroom=25)
    assert read_policy(written(tmp_path, "policy: {name: fifo, cadence: 0}\n", "p.yaml")) == apply_settings(
        POLICIES["fifo"], ["cadence=0"]
    )
    assert read_policy(written(tmp_path, "policy: quota\n", "p.yaml")) == POLICIES["quota"]
    for text, message in (
        ("", "is empty"),
        ("base: nix\n", "known are budget"),
        ("base: bugdet\n", "did you mean budget"),
        ("window: [1d]\n", "window holds a list"),
    ):
        with pytest.raises(LogError, match=message):
            read_policy(written(tmp_path, text, "p.yaml"))


def test_settings_on_the_command_line() -> None:
    assert apply_settings(Policy(), ["window=1d", "margin=5%", "window=2d"]) == Policy(window=2 * DAY, margin=50)
    for wrong in ("window", "windw=1d", "window=1", "margin=5", "order=best"):
        with pytest.raises(LogError, match=r"window|margin|order"):
            apply_settings(Policy(), [wrong])


CONTRACT = """
contract:
  small_slots: 4
  small_minimum: 10m
  minimum: 4h
  checkpoint: never
  restart: 2m
  rules:
    - match: {account: "*/vision", gpus: ">8"}
      min_runtime: 12h
      resume: no
    - match: {label: "inter*"}
      min_runtime: 0
      label: session
    - match: {user: bob, slots: 1-2}
      checkpoint: 5m
      min_runtime: 1m
"""


def test_contract_files(tmp_path: Path) -> None:
    rules = read_contract(written(tmp_path, CONTRACT, "k.yaml"))
    small, large = rules.agree("a", "u", "", 4), rules.agree("a", "u", "", 5)
    assert (small.min_runtime, large.min_runtime, small.checkpoint, small.restart) == (10 * M, 4 * H, 0, 2 * M)
    assert rules.agree("a", "u", "", 5, limit=1 * H).min_runtime == 1 * H, "never beyond the time limit"
    vision = rules.agree("north/vision", "u", "", 16)
    assert (vision.min_runtime, vision.resume) == (8 * H, False), "no rule goes beyond the cap"
    assert rules.agree("north/vision", "u", "", 8).min_runtime == 4 * H
    session = rules.agree("a", "bob", "interactive", 1)
    assert (session.min_runtime, session.label, session.checkpoint) == (0, "session", 5 * M), (
        "first that states it wins"
    )


def test_the_default_rule_is_the_agreed_one() -> None:
    agree = ContractRules().agree
    assert [agree("a", "u", "", gpus).min_runtime for gpus in (1, 2, 3, 512)] == [15 * M, 15 * M, 2 * H, 2 * H]
    assert (agree("a", "u", "", 1).checkpoint, agree("a", "u", "", 1).restart) == (30 * M, 60 * S)


def test_rules_can_ask_for_the_name_of_a_job(tmp_path: Path) -> None:
    text = "contract: {rules: [{match: {name: '*jupyter*', account: fish}, min_runtime: 4h, label: session}]}\n"
    rules = read_contract(written(tmp_path, text, "k.yaml"))
    log = sacct({"JobName": "my-jupyter-lab"}, {"JobID": "2"}, {"JobID": "3", "JobName": "jupyter", "Account": "bird"})
    found = [(a.workload.label, a.workload.shape.min_runtime) for a in read(tmp_path, log, contract=rules).arrivals]
    assert found == [("session", 4 * H), ("gpu", 2 * H), ("gpu", 2 * H)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("contract: {minimum: 2}\n", r":1: minimum: '2' is not a duration: write a number with a unit"),
        ("contract: {minimal: 2h}\n", r":1: contract has no key 'minimal': did you mean minimum\?"),
        ("contract: {rules: [{min_runtime: 2h}]}\n", r":1: the rule has no 'match': add it"),
        ("contract: {rules: [{match: {size: 2}}]}\n", r":1: match has no key 'size'"),
        ("contract: {rules: [{match: {slots: 2-1}}]}\n", r":1: slots: '2-1' is not a size: write 4, 1-2, <=2 or >8"),
        ("contract: {rules: [{match: {slots: 2, gpus: 2}}]}\n", r":1: match names both gpus and slots"),
        ("contract: {resume: maybe}\n", r":1: resume: 'maybe' is neither yes nor no"),
        ("rules: []\n", r":1: the file has no key 'rules': known is contract"),
        ("", r":1: the file has no 'contract': add it"),
    ],
)
def test_a_contract_file_that_is_wrong_is_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(LogError, match=message):
        read_contract(written(tmp_path, text, "k.yaml"))


def test_node_events_are_sorted_and_unusable_ones_named() -> None:
    troubles, notes = read_node_events(FIXTURES / "node_events.csv", ["n001", "n002", "n003"], None)
    assert troubles == [
        NodeTrouble(3600 * S, "n001", "down", 1800 * S, True),
        NodeTrouble(7200 * S, "n003", "degraded", 3600 * S, False),
    ]
    assert notes == [
        "node events not used: 1 of 4 (the node is not in the cluster; first at line 4)",
        "node events not used: 1 of 4 (the event is neither degraded nor down; first at line 5)",
    ]


def test_node_events_by_unix_time_meet_the_log(tmp_path: Path) -> None:
    path = written(tmp_path, "time_s,node,event,repair_s\n1709254800,n1,down,60\nx,n1,down,60\n0,n1,down,-1\n", "e.csv")
    troubles, notes = read_node_events(path, ["n1"], 1709251200_000)
    assert troubles == [NodeTrouble(1 * H, "n1", "down", 60 * S)]
    assert notes == ["node events not used: 2 of 3 (time_s, repair_s or stuck is not a number; first at line 3)"]
    with pytest.raises(LogError, match="has no column event"):
        read_node_events(written(tmp_path, "time_s,node,repair_s\n", "e.csv"), [], None)
