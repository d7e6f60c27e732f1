from plumbline.reports.machine import events, readings


def launch(before: dict | None, after: dict | None, node: str = "n1") -> dict:
    snapshots = {name: found for name, found in (("before", before), ("after", after)) if found is not None}
    return {"launch_id": f"fio-{node}", "nodes": [node], "snapshots": snapshots}


def test_a_range_names_the_place_of_its_bad_end():
    hot = {"gpus": [{"index": "0", "temperature.gpu": "50", "clocks.current.sm": "1980"},
                    {"index": "1", "temperature.gpu": "84", "clocks.current.sm": "1200"}]}  # fmt: skip
    found = {item.title: item for item in readings([launch({"gpus": hot["gpus"][:1]}, hot, "n{1}"), launch(hot, None)])}
    heat, clock = found["GPU temperature"], found["GPU SM clock"]
    assert (heat.least, heat.most, heat.text) == (50, 84, "50 … 84 °C")
    assert heat.where == "n{1} GPU 1, after fio-n{1}", "high is bad"
    assert clock.where.startswith("n{1} GPU 1"), "low is bad"


def test_what_a_machine_does_not_have_is_no_reading():
    nothing = {"gpus": [{"temperature.gpu": "[N/A]", "power.draw": "nan", "clocks.current.sm": None}, "broken"]}
    assert readings([launch(nothing, nothing), launch(None, None), {"launch_id": "x", "nodes": []}]) == []


def test_only_a_counter_that_rose_is_an_event():
    before = {"cpu_throttle_count": 5, "network_counters": {"eth0": {"rx_errors": 7, "port_xmit_wait": 0}}}
    after = {"cpu_throttle_count": 5, "network_counters": {"eth0": {"rx_errors": 9, "port_xmit_wait": 1000}}}
    found = events([launch(before, after), launch(after, before, "n2"), launch(None, after, "n3")])
    assert [(item.what, item.rise, item.where) for item in found] == [("eth0 rx_errors", 2, "n1")]


def test_the_largest_rise_comes_first():
    def ecc(count: int) -> dict:
        return {"gpus": [{"index": "3", "ecc.errors.uncorrected.volatile.total": str(count)}]}

    found = events([launch(ecc(0), ecc(1), "a"), launch(ecc(0), ecc(9), "b")])
    assert [(item.rise, item.where) for item in found] == [(9, "b"), (1, "a")]
    assert found[0].what == "GPU 3 uncorrected ECC errors"
