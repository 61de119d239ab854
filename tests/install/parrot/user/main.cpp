int hear_parrot();
int main() {
    return hear_parrot();
}
