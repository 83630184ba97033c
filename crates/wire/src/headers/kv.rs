//! Key-value settings of the name server: 100 put, 101 get, 102 delete, 219 list.

super::header! {
    /// PUT_KV_CONFIG 100.
    PutKvRequest {
        /// Namespace.
        namespace: String = "namespace",
        /// Key.
        key: String = "key",
        /// Value.
        value: Option<String> = "value",
    }
}

super::header! {
    /// GET_KV_CONFIG 101 and DELETE_KV_CONFIG 102.
    KvRequest {
        /// Namespace.
        namespace: String = "namespace",
        /// Key.
        key: String = "key",
    }
}

super::header! {
    /// Answer of 101.
    GetKvResponse {
        /// Value; absent when there is none.
        value: Option<String> = "value",
    }
}

super::header! {
    /// GET_KVLIST_BY_NAMESPACE 219; the answer is a [`crate::body::KvTable`].
    KvListRequest {
        /// Namespace.
        namespace: String = "namespace",
    }
}
