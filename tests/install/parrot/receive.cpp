int parrot();
int hear_parrot() {
    return parrot();
}
