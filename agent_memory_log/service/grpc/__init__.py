"""The operations over gRPC, for the server and for its clients. It needs the extra ``grpc``."""
