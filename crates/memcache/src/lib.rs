//! memcache
