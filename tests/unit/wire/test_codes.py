"""Names and numbers of stock's codes."""

from rocketmq_tw.wire.codes import RequestCode, ResponseCode


def test_every_request_code(golden_codes):
    stock = golden_codes["RequestCode"]
    assert {name: RequestCode[name].value for name in stock} == stock


def test_every_response_code(golden_codes):
    stock = golden_codes["ResponseCode"]
    assert {name: ResponseCode[name].value for name in stock} == stock
