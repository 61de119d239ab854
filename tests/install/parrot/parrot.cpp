int parrot() {
    return 0;
}
