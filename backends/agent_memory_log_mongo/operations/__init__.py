"""What each call of a store does. A coroutine each, which on threads is never suspended."""
