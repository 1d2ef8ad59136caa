"""The service keeps to its own OpenAPI description, whatever is asked."""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    positive_data_acceptance,
    response_schema_conformance,
)

CHECKS = [
    not_a_server_error,
    content_type_conformance,
    positive_data_acceptance,
    response_schema_conformance,
]


@pytest.fixture(scope="module")
def description(address):
    return schemathesis.openapi.from_url(f"http://{address[0]}:{address[1]}/openapi.json")


@pytest.mark.slow
def test_every_route_is_described(description):
    paths = {operation.ok().path for operation in description.get_all_operations()}
    named = "search browse facets duplicates topics caption similar explain export zip status uploads"
    named += " places folders copies"
    photo = {f"/api/photos/{{id}}{rest}" for rest in ("", "/details", "/original")}
    assert paths == {f"/api/{name}" for name in named.split()} | photo


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(GenerationMode))
def test_answers_are_as_described(description, mode):
    for result in description.get_all_operations():
        operation = result.ok()
        if operation.method == "post":  # its body is a photo, which no schema describes
            continue
        # Any text is a valid id: there is nothing to violate where it is the only parameter.
        places = {one.location for one in operation.iter_parameters()}
        if mode is GenerationMode.NEGATIVE and places <= {"path"}:
            continue

        @settings(
            max_examples=25,
            deadline=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(operation.as_strategy(generation_mode=mode))
        def check(case):
            conditions = case.query or {}
            assume(str(conditions.get("after", "")) < str(conditions.get("before", "~")))
            if mode is GenerationMode.POSITIVE and "near" in conditions:
                case.query["near"] = "52.5,13.4,10km"  # no schema knows which names of places there are
            case.call_and_validate(checks=CHECKS)

        check()
