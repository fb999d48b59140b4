"""hardmax, the offline side: trains, constructs, exports and verifies the bundles that `service` serves."""
