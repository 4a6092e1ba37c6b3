"""The operations of a store, one coroutine for each call. On threads, a coroutine never suspends."""
