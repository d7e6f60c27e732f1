"""Programs that run on the nodes: what the benchmark images hold."""
