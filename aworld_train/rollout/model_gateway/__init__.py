"""The model gateway: an HTTP server that reads three dialects and passes each request to a conversation."""

from aworld_train.rollout.model_gateway.app import ModelGateway, ModelGatewaySession, model_gateway

__all__ = ["ModelGateway", "ModelGatewaySession", "model_gateway"]
