from vramcast.cli.main import main

main()
